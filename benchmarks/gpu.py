"""Speed on a CUDA GPU: `python -m benchmarks.gpu [--only check,kernels,steps,...] [--out FILE]`.

============  =====================================================================================================
check         every kernel against its definition, same bits twice; a failure ends the program with code 1
kernels       each kernel at the paper's sizes: ms, bytes, GB/s, share of the floor that memory and arithmetic set
steps         whole training steps of the recipes, other n and d, memory, re-ordering, waits for the device
kmeans        re-ordering of 15 thousand to 1.5 million entities
ranking       filtered ranking of whole test sets
samplers      a step of each sampler against a uniform one that scores as many candidates
all-entities  steps of the softmax over all entities, with rows in float32 and in bfloat16, against plain PyTorch
sweep         other tiles in the place of the chosen ones; only when asked for
quality       whole runs named by ``--runs recipe[:override]...``, appended to ``records/fast.jsonl``
============  =====================================================================================================

Without ``--only`` all but the last two run, in three to four minutes on an H200. Results are merged, section by
section as they come, into ``records/gpu-speed.json``; every section keeps the commit and date it was measured at.
Graphs are looked for in ``$EANS_DATA``; random ones of the same size stand in.

``--quick`` makes everything tiny and ``--device cpu`` runs it with plain PyTorch kernels (with Triton's interpreter
where ``TRITON_INTERPRET=1``): to try the program, not to measure. Such runs write nothing unless ``--out`` says where.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch

from benchmarks import gpu_all_entities, gpu_kernels, gpu_quality, gpu_samplers, gpu_steps, gpu_sweep, gpu_targets
from benchmarks.cells import RECORDS
from benchmarks.gpu_check import check
from benchmarks.gpu_check_step import ROUNDED_TOLERANCE, TF32_TOLERANCE
from benchmarks.speed_record import Record, facts, merged, update
from benchmarks.timing import Setting
from eans import kernels
from eans.errors import EansError

FILE = RECORDS / "gpu-speed.json"
MEASUREMENTS: dict[str, Callable[[Setting], Record]] = {
    "kernels": gpu_kernels.measure,
    "steps": gpu_steps.measure_steps,
    "kmeans": gpu_steps.measure_kmeans,
    "ranking": gpu_steps.measure_ranking,
    "samplers": gpu_samplers.measure_samplers,
    "all-entities": gpu_all_entities.measure_all_entities,
    "sweep": gpu_sweep.measure_sweep,
}
ON_DEMAND = ("sweep", "quality")
SECTIONS = ("check", *MEASUREMENTS, "quality")


class WrongResults(Exception):
    """A kernel does not compute what it should."""


def run_check(setting: Setting) -> Record:
    """Print what fails, or the worst error."""
    findings = check(setting)
    failed = [finding for finding in findings if not finding.passed]
    for finding in failed:
        print(f"WRONG {finding.name}: relative error {finding.error:.1e}, same bits twice: {finding.same}", flush=True)
    if failed:
        raise WrongResults(f"{len(failed)} of {len(findings)} checks failed")
    rounded = [finding for finding in findings if finding.tolerance in (ROUNDED_TOLERANCE, TF32_TOLERANCE)]
    for finding in rounded:
        print(f"{finding.name}: relative error {finding.error:.1e}")
    worst = max((finding for finding in findings if finding not in rounded), key=lambda finding: finding.error)
    print(
        f"{len(findings)} checks passed; worst relative error {worst.error:.1e} ({worst.name}); same bits twice; "
        f"at most {max(finding.doubtful for finding in findings)} slopes of a case in doubt by rounding",
        flush=True,
    )
    return {
        "checks": len(findings),
        "worst_error": worst.error,
        "findings": [finding._asdict() for finding in findings],
    }


def sections_of(text: str) -> list[str]:
    """``"steps,check"`` -> the sections in their fixed order."""
    wanted = {part.strip() for part in text.split(",") if part.strip()}
    if unknown := wanted - set(SECTIONS):
        raise argparse.ArgumentTypeError(f"unknown section {', '.join(sorted(unknown))} (of {', '.join(SECTIONS)})")
    return [section for section in SECTIONS if section in wanted]


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", type=sections_of, metavar="SECTIONS", help="comma-separated")
    parser.add_argument("--out", type=Path, help=f"record to merge into (default {FILE.parent.name}/{FILE.name})")
    parser.add_argument("--runs", nargs="+", default=[], metavar="RECIPE", help="for quality: recipe[:override]...")
    parser.add_argument("--seed", type=int, default=0, help="of the quality runs")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, to try the program")
    parser.add_argument("--device", default="cuda")
    options = parser.parse_args(arguments)
    if not options.only:
        options.only = [section for section in SECTIONS if section not in ON_DEMAND]
        options.only += ["quality"] if options.runs else []
    if "quality" in options.only and not options.runs:
        parser.error("quality needs --runs")
    return options


def measure(section: str, options: argparse.Namespace, setting: Setting) -> Record:
    """One section's results."""
    if section == "check":
        return run_check(setting)
    if section == "quality":
        file = options.out.with_name(gpu_quality.FILE.name) if options.out else None
        return gpu_quality.measure_quality(options.runs, options.seed, setting, file)
    return MEASUREMENTS[section](setting)


def main(arguments: list[str] | None = None) -> int:
    """Run the sections in order; returns the exit code."""
    options = parse_arguments(arguments)
    setting = Setting(torch.device(options.device), options.quick)
    if setting.on_gpu and not torch.cuda.is_available():
        print("no CUDA GPU; try --quick --device cpu", file=sys.stderr)
        return 2
    if not setting.on_gpu:
        kernels.choose("triton" if os.environ.get("TRITON_INTERPRET") == "1" else "reference")
    if options.out is None and setting.on_gpu and not setting.quick:
        options.out = FILE
    record: Record = {}
    for section in options.only:
        print(f"\n== {section}", flush=True)
        about, began = facts(setting.device), time.perf_counter()
        try:
            results = measure(section, options, setting)
            results = {"quick": setting.quick, "seconds": round(time.perf_counter() - began, 1), **results}
            record = merged(record, section, results, about)
            if options.out is not None:
                update(options.out, section, results, about)
        except (WrongResults, EansError) as problem:
            print(f"{section}: {problem}", file=sys.stderr)
            return 1
        print(f"({section}: {results['seconds']} s)", flush=True)
    if verdicts := gpu_targets.judge(record["sections"]):
        print(f"\n== targets\n{gpu_targets.text(verdicts)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
