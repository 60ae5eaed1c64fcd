"""The library beside PyKEEN on the same CPU, in the same run: ``python -m benchmarks.cpu`` (or ``make bench``).

Whole training steps, filtered ranking, peak memory, the time from the command to the end of the first step, and a sweep
of sizes against PyTorch written by hand, on FB15k-237. Every measurement has a process of its own; the two libraries
take turns; numbers are medians. Prints tables and writes ``records/cpu-speed.json``. About 15 minutes on two cores.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from typing import Any

from benchmarks.cells import RECORDS
from benchmarks.cpu_report import report
from eans.experiments import current_commit

FILE = RECORDS / "cpu-speed.json"
PACKAGES = ("eans", "pykeen", "torch", "numba", "numpy")
SYNTHETIC_SIZES = {"entities": 14541, "relations": 237, "train": 272115, "valid": 17535, "test": 20466}

# (model, dim, batch, negatives, timed steps of eans, of PyKEEN in each of the rounds)
STEP_CELLS = [
    ("transe", 1000, 1024, 256, 10, 2),
    ("distmult", 1000, 1024, 256, 10, 2),
    ("rotate", 1000, 128, 256, 10, 2),
    ("transe", 200, 1024, 64, 40, 6),
    ("distmult", 200, 1024, 64, 40, 6),
    ("complex", 200, 1024, 64, 40, 3),
    ("rotate", 200, 1024, 64, 40, 4),
]
EANS_MODELS = ("transe", "distmult")  # with substitution, at d=1000
ROUNDS = 2
# Test triples that PyKEEN ranks in some ten seconds: (model, dim, triples).
RANK_CELLS = [
    ("transe", 200, 256),
    ("transd", 200, 96),
    ("distmult", 200, 256),
    ("complex", 200, 256),
    ("rotate", 200, 64),
    ("transe", 1000, 128),
    ("transd", 1000, 32),
    ("distmult", 1000, 128),
    ("complex", 1000, 96),
    ("rotate", 1000, 32),
]
SWEEPS = [("transe", 1), ("transe", 3), ("distmult", 1), ("rotate", 1)]
DIMS = (50, 200, 1000)
# For both libraries, as the command line sets it: waiting threads sleep, so that a program beside disturbs less.
THREADS = {"OMP_WAIT_POLICY": "PASSIVE"}
FIRST_STEP = "fb15k-237/transe/{method}"


def measure(task: str, **request: Any) -> dict[str, Any]:
    """One measurement in a process of its own, begun when the machine is idle."""
    wait_until_idle()
    command = [sys.executable, "-W", "ignore", "-m", "benchmarks.cpu_worker", json.dumps({"task": task, **request})]
    began, before, own = time.perf_counter(), busy_seconds(), child_seconds()
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | THREADS)
    if done.returncode:
        raise SystemExit(f"{request}: {done.stderr[-2000:]}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    others = (busy_seconds() - before) - (child_seconds() - own)
    result["others_busy"] = round(max(0.0, others) / (time.perf_counter() - began), 2)
    return result


def busy_seconds() -> float:
    """Processor time of all processes of this machine since its start; 0 where the system does not say."""
    numbers = [int(word) for word in (_lines("/proc/stat") or ["cpu"])[0].split()[1:]]
    return (sum(numbers[:3]) + sum(numbers[5:8])) / os.sysconf("SC_CLK_TCK") if numbers else 0.0


def child_seconds() -> float:
    """Processor time of the finished child processes."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def wait_until_idle(patience: float = 5.0) -> None:
    """Return when other programs use less than a tenth of a core, or when patience ends."""
    end = time.perf_counter() + patience
    while True:
        before = busy_seconds()
        time.sleep(1.0)
        if busy_seconds() - before < 0.1 or time.perf_counter() > end:
            return


def say(text: str) -> None:
    """Progress, beside the tables."""
    print(text, file=sys.stderr, flush=True)


def joined(parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The measurements of several rounds as one: the median of all seconds, the largest peak."""
    seconds = [second for part in parts for second in part["seconds"]]
    result = {"seconds": statistics.median(seconds), "of": len(seconds), "least": min(seconds), "most": max(seconds)}
    most = {name: max(part[name] for part in parts) for name in ("peak_mb", "others_busy")}
    return {**parts[0], **result, **most}


def time_steps(graph: str) -> list[dict[str, Any]]:
    """Training steps of both libraries, by turns."""
    rows = []
    for model, dim, batch, negatives, ours, theirs in STEP_CELLS:
        methods = {"eans adv": ("eans", "adv", ours), "pykeen": ("pykeen", "adv", theirs)}
        if model in EANS_MODELS and dim == 1000:
            methods["eans eans+adv"] = ("eans", "eans+adv", ours)
        parts: dict[str, list[dict[str, Any]]] = {name: [] for name in methods}
        for _ in range(ROUNDS):
            for name, (library, method, count) in methods.items():
                size = [dim, batch, negatives]
                request = {"library": library, "model": model, "method": method, "size": size, "count": count}
                parts[name].append(measure("steps", graph=graph, **request))
        row: dict[str, Any] = {"model": model, "dim": dim, "batch": batch, "negatives": negatives}
        row |= {name: joined(part) for name, part in parts.items()}
        rows.append(row)
        say(f"step {model} d={dim}: " + ", ".join(f"{name} {row[name]['seconds']:.3f} s" for name in methods))
    return rows


def time_ranking(graph: str) -> list[dict[str, Any]]:
    """Filtered ranking by both libraries; the same triples."""
    rows = []
    for model, dim, count in RANK_CELLS:
        row: dict[str, Any] = {"model": model, "dim": dim, "triples": count}
        for library in ("eans", "pykeen"):
            request = {"library": library, "model": model, "dim": dim, "count": count}
            row[library] = joined([measure("ranking", graph=graph, **request)])
        rows.append(row)
        say(
            f"ranking {model} d={dim}: "
            + ", ".join(f"{name} {row[name]['seconds']:.2f} s" for name in ("eans", "pykeen"))
        )
    return rows


def time_first_step(graph: str, method: str, cache: Path) -> float:
    """Seconds from the command to the end of its first step, with compiled loops kept in `cache`."""
    with tempfile.TemporaryDirectory() as folder:
        command = [str(Path(sys.executable).with_name("eans")), "train", FIRST_STEP.format(method=method)]
        command += ["--data", graph, "--out", f"{folder}/run", "--set", "train.steps=2", "--set", "train.log_every=1"]
        wait_until_idle()
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
        began = time.perf_counter()
        with subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment
        ) as run:
            assert run.stdout is not None
            printed = []
            for line in run.stdout:
                printed.append(line)
                if line.startswith("step 1/"):
                    seconds = time.perf_counter() - began
                    run.kill()
                    return seconds
    raise SystemExit(f"no first step: {''.join(printed)[-2000:]}")


def first_steps(graph: str) -> list[dict[str, Any]]:
    """From the command to the end of the first step: with an empty cache of compiled loops, then with a filled one."""
    rows = []
    for method in ("adv", "eans+adv"):
        with tempfile.TemporaryDirectory() as cache:
            cold = time_first_step(graph, method, Path(cache))
            warm = [time_first_step(graph, method, Path(cache)) for _ in range(3)]
        rows.append({"recipe": FIRST_STEP.format(method=method), "cold": cold, "warm": statistics.median(warm)})
        say(f"first step {method}: cold {cold:.1f} s, warm {statistics.median(warm):.1f} s")
    return rows


def run_sweeps(graph: str) -> list[dict[str, Any]]:
    """Steps at many sizes against eager PyTorch."""
    rows = []
    for model, queries in SWEEPS:
        for dim in DIMS:
            rows += measure("sweep", graph=graph, model=model, queries=queries, dims=[dim], seconds=1.0)["rows"]
        say(f"sweep {model}, {queries} queries")
    return rows


def facts(synthetic: bool) -> dict[str, Any]:
    """Where, when and with what."""
    cpu = [line.partition(":")[2].strip() for line in _lines("/proc/cpuinfo") if line.startswith("model name")]
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {
        "graph": "synthetic, of the size of FB15k-237" if synthetic else "FB15k-237",
        "hardware": f"{os.cpu_count()} x {cpu[0] if cpu else platform.machine()}, {memory:.0f} GiB",
        "environment": THREADS,
        "load_before": os.getloadavg()[0],
        "date": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "commit": current_commit(),
        "versions": {"python": platform.python_version(), **{name: version(name) for name in PACKAGES}},
    }


def _lines(path: str) -> list[str]:
    return Path(path).read_text("utf-8").splitlines() if Path(path).is_file() else []


def write_synthetic(folder: Path) -> None:
    """Random triples of the sizes of FB15k-237; relations and entities as skewed as in a real graph."""
    import numpy as np

    generator = np.random.default_rng(0)
    for split in ("train", "valid", "test"):
        count = SYNTHETIC_SIZES[split]
        ends = (generator.random((2, count)) ** 2 * SYNTHETIC_SIZES["entities"]).astype(int)
        relations = (generator.random(count) ** 2 * SYNTHETIC_SIZES["relations"]).astype(int)
        if split == "train":  # every entity occurs
            ends[0, : SYNTHETIC_SIZES["entities"]] = np.arange(SYNTHETIC_SIZES["entities"])
            relations[: SYNTHETIC_SIZES["relations"]] = np.arange(SYNTHETIC_SIZES["relations"])
        lines = (f"e{h}\tr{r}\te{t}\n" for h, r, t in zip(ends[0], relations, ends[1], strict=True))
        (folder / f"{split}.txt").write_text("".join(lines), "utf-8")


def main() -> None:
    """Measure, write the record, print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--table-only", action="store_true", help="measure nothing, print the record")
    parser.add_argument("--out", type=Path, default=FILE, help="the record")
    options = parser.parse_args()
    if not options.table_only:
        from eans.data import info
        from eans.files import atomic_write

        with tempfile.TemporaryDirectory() as folder:
            synthetic = info("fb15k-237").folder is None
            graph = folder if synthetic else "fb15k-237"
            if synthetic:
                say("FB15k-237 is not on this machine: using a synthetic graph of its size")
                write_synthetic(Path(folder))
            began = time.perf_counter()
            record = facts(synthetic) | {
                "first_step": first_steps(graph),
                "steps": time_steps(graph),
                "ranking": time_ranking(graph),
                "sweep": run_sweeps(graph),
            }
            record["total_seconds"] = round(time.perf_counter() - began)
        options.out.parent.mkdir(parents=True, exist_ok=True)
        atomic_write(options.out, (json.dumps(record, indent=1) + "\n").encode())
    print(report(json.loads(options.out.read_text("utf-8"))))


if __name__ == "__main__":
    main()
