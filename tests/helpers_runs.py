"""What the suites about runs share: a small graph with structure, its folder on disk, and the real `eans` command."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from eans.graph import SPLITS, KnowledgeGraph
from eans.models import Model

COMMAND = str(Path(sys.executable).with_name("eans"))
TIMINGS = ("seconds", "triples_per_second")


def ring_graph(entities: int = 60, name: str = "ring") -> KnowledgeGraph:
    """Entities on a ring, linked by fixed offsets: a translation or rotation can learn it. Every eighth triple is held
    out, alternately for valid and test.
    """
    triples = [
        (f"e{i}", f"plus{offset}", f"e{(i + offset) % entities}") for i in range(entities) for offset in (1, 2, 5)
    ]
    train = [triple for index, triple in enumerate(triples) if index % 8]
    return KnowledgeGraph.from_labels(train, triples[::16], triples[8::16], name)


def write_graph(graph: KnowledgeGraph, folder: Path) -> Path:
    """The graph as a folder of text files."""
    folder.mkdir(parents=True)
    for split in SPLITS:
        (folder / f"{split}.txt").write_text("".join(graph.text(split)), "utf-8")
    return folder


def environment(**more: str) -> dict[str, str]:
    """That of a subprocess: one thread, so that bits do not depend on the machine, and no settings of the user's."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith("EANS_")}
    return {**kept, "OMP_NUM_THREADS": "1", **more}


def eans(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run the real command to its end."""
    options = {"env": environment(), "timeout": 120, "capture_output": True, "text": True, **options}
    return subprocess.run([COMMAND, *map(str, arguments)], check=False, **options)


def workers_of(group: int) -> list[int]:
    """The processes of a process group that `multiprocessing` started for runs or trials."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            command = (folder / "cmdline").read_bytes()
            if b"spawn_main" in command and os.getpgid(int(folder.name)) == group:
                found.append(int(folder.name))
    return found


def without_timings(record: dict[str, Any]) -> dict[str, Any]:
    """A log record, or the facts about a training, without what a clock decided."""
    return {key: value for key, value in record.items() if key not in TIMINGS}


def outcome(folder: Path) -> tuple[bytes, dict[str, Any], list[dict[str, Any]]]:
    """What two equal runs have in common: the bytes of the weights, metrics and log, both without timings."""
    metrics = json.loads((folder / "metrics.json").read_text("utf-8"))
    metrics["training"] = without_timings(metrics["training"])
    log = [without_timings(json.loads(line)) for line in (folder / "log.jsonl").read_text("utf-8").splitlines()]
    return (folder / "model.safetensors").read_bytes(), metrics, log


def one_line(text: str) -> str:
    """`text` without its line end, after checking that it is one line and no traceback."""
    assert "Traceback" not in text, text
    lines = text.splitlines()
    assert len(lines) == 1, text
    return lines[0]


def as_if_trained(model: Model, generator: torch.Generator) -> Model:
    """The same model, with batch norms and entity biases that are not those of the start."""
    for layer in model.modules():
        if isinstance(layer, _BatchNorm):
            for values in (layer.running_mean, layer.running_var, layer.weight.data, layer.bias.data):
                values.uniform_(0.2, 1.5, generator=generator)
    if model.entity_bias:
        model.entity.data[:, -1].uniform_(-1, 1, generator=generator)
    return model
