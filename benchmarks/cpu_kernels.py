"""Time the CPU loops of `eans.kernels` against the plain PyTorch that defines them.

``python -m benchmarks.cpu_kernels`` checks scores and gradients against float64 first, then prints the best of several
forward + backward calls of both, taken in turns, in milliseconds, for an entity table of the size of FB15k-237. Other
tables do the same for `compare_all` and `softmax_nll`. Options: ``--seconds`` of timing per cell and implementation,
``--kinds``, ``--dims``, ``--threads``. Where other programs run on the same cores, compare ``--threads 1 --clock cpu``:
processor time, of one thread.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable, Iterable
from functools import partial
from types import SimpleNamespace

import numba
import numpy
import torch
from torch import Tensor

from benchmarks.findings import Case
from eans import kernels
from eans.kernels import COMPARISONS, Comparison

REFERENCE, NUMBA = kernels.functions("reference"), kernels.functions("numba")
NUM_ENTITIES = 14541
DIMS, NEGATIVES, BATCHES, COUNTS = (50, 200, 1000), (1, 16, 256), (128, 1024), (1, 3)
RANKED = 64  # queries of one `compare_all`
CANDIDATES = (64, 256, NUM_ENTITIES)  # of one `softmax_nll`


def make_case(
    count: int, batch: int, negatives: int, dim: int, shifted: bool = False, num_entities: int = NUM_ENTITIES
) -> Case:
    """Random float32 arguments."""
    generator = torch.Generator().manual_seed(0)

    def normal(*size: int) -> Tensor:
        return torch.randn(*size, generator=generator)

    return Case(
        normal(count, batch, dim),
        normal(num_entities, dim),
        torch.randint(num_entities, (batch, negatives), generator=generator),
        normal(count, batch, dim) if shifted else None,
        normal(num_entities) if shifted else None,
        normal(count, batch, negatives),
    )


def results(module: SimpleNamespace, kind: Comparison, case: Case) -> list[Tensor]:
    """Scores and every gradient."""
    floats = [case.queries, case.table, case.shifts, case.scalars]
    leaves = [None if value is None else value.detach().requires_grad_() for value in floats]
    queries, table, shifts, scalars = leaves
    scores = module.compare(kind, queries, table, case.entities, shifts, scalars)
    given = [leaf for leaf in leaves if leaf is not None]
    return [scores.detach(), *torch.autograd.grad(scores, given, case.outer)]


def ranked(module: SimpleNamespace, kind: Comparison, case: Case) -> Tensor:
    """Scores of the first query of each positive with all entities."""
    scores: Tensor = module.compare_all(kind, case.queries[0], case.table)
    return scores


def widened(case: Case) -> Case:
    """The same in float64."""
    return Case(*(value.double() if value is not None and value.is_floating_point() else value for value in case))  # type: ignore[arg-type]


def relative_error(value: Tensor, exact: Tensor) -> float:
    """Norm of the error over the norm of the exact tensor."""
    return float(torch.linalg.vector_norm(value.double() - exact) / torch.linalg.vector_norm(exact))


def check(kinds: Iterable[Comparison]) -> float:
    """The largest relative error of any result; raises when it is not one of rounding."""
    worst = 0.0
    for kind in kinds:
        for shifted in (False, True):
            case = make_case(3, 33, 65, 102, shifted, num_entities=501)
            exact = results(REFERENCE, kind, widened(case))
            found = results(NUMBA, kind, case)
            worst = max([worst, *(relative_error(a, b) for a, b in zip(found, exact, strict=True))])
            shifts = None if case.shifts is None else case.shifts[0]
            scores = NUMBA.compare_all(kind, case.queries[0], case.table, shifts, case.scalars)
            all_entities = torch.arange(501).expand(33, 501)
            wide = widened(case)
            moved = None if wide.shifts is None else wide.shifts[:1]
            exact_scores = REFERENCE.compare(kind, wide.queries[:1], wide.table, all_entities, moved, wide.scalars)[0]
            worst = max(worst, relative_error(scores, exact_scores))
    if not worst < 1e-6:
        raise SystemExit(f"wrong results: relative error {worst:.1e}")
    return worst


def timed(call: Callable[[SimpleNamespace], object], seconds: float, clock: Callable[[], float]) -> tuple[float, float]:
    """The least time of ``call(functions)`` for the reference and the loops, in milliseconds.

    They take turns, so that a busy machine slows both.
    """
    implementations = REFERENCE, NUMBA
    best = [float("inf")] * len(implementations)
    end = time.perf_counter() + seconds * len(implementations)
    while True:
        for index, functions in enumerate(implementations):
            start = clock()
            call(functions)
            best[index] = min(best[index], clock() - start)
        if time.perf_counter() >= end:
            return 1e3 * best[0], 1e3 * best[1]


def _line(kind: str, *cells: object) -> str:
    return f"{kind:8}" + "".join(f"{cell:>6}" for cell in cells)


def _ratio(plain: float, fast: float) -> str:
    return f"{plain:11.3f}{fast:11.3f}{plain / fast:8.1f}x"


def time_compare(kinds: Iterable[Comparison], dims: Iterable[int], seconds: float, clock: Callable[[], float]) -> None:
    """Print forward + backward of every cell."""
    print(f"\ncompare, forward + backward, E={NUM_ENTITIES}, float32; ms\n")
    print(_line("", "Q", "d", "n", "b") + f"{'reference':>11}{'numba':>11}{'ratio':>9}")
    cells = [(c, d, n, b) for c in COUNTS for d in dims for n in NEGATIVES for b in BATCHES]
    for kind in kinds:
        for count, dim, negatives, batch in cells:
            case = make_case(count, batch, negatives, dim)
            times = timed(partial(results, kind=kind, case=case), seconds, clock)
            print(_line(kind, count, dim, negatives, batch) + _ratio(*times), flush=True)


def time_compare_all(
    kinds: Iterable[Comparison], dims: Iterable[int], seconds: float, clock: Callable[[], float]
) -> None:
    """Print `compare_all` of RANKED queries."""
    print(f"\ncompare_all of {RANKED} queries, E={NUM_ENTITIES}, float32; ms\n")
    print(_line("", "d") + f"{'reference':>11}{'numba':>11}{'ratio':>9}")
    for kind in kinds:
        for dim in dims:
            case = make_case(1, RANKED, 1, dim)
            times = timed(partial(ranked, kind=kind, case=case), seconds, clock)
            print(_line(kind, dim) + _ratio(*times), flush=True)


def time_softmax_nll(seconds: float, clock: Callable[[], float]) -> None:
    """Print forward + backward of the cross-entropy of positives among their candidates."""
    print("\nsoftmax_nll, forward + backward, float32; ms\n")
    print(_line("", "n", "b") + f"{'reference':>11}{'numba':>11}{'ratio':>9}")
    for negatives in CANDIDATES:
        for batch in BATCHES:
            generator = torch.Generator().manual_seed(0)
            scores = [
                torch.randn(*size, generator=generator).requires_grad_() for size in ((batch,), (batch, negatives))
            ]
            known = torch.zeros(batch, negatives, dtype=torch.bool)

            def both(
                module: SimpleNamespace, scores: list[Tensor] = scores, known: Tensor = known
            ) -> tuple[Tensor, ...]:
                return torch.autograd.grad(module.softmax_nll(*scores, known, None).sum(), scores)

            times = timed(both, seconds, clock)
            print(_line("", negatives, batch) + _ratio(*times), flush=True)


def main() -> None:
    """Check, then time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=0.1)
    parser.add_argument("--kinds", nargs="+", default=list(COMPARISONS), choices=COMPARISONS)
    parser.add_argument("--dims", nargs="+", type=int, default=list(DIMS))
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--clock", default="wall", choices=["wall", "cpu"])
    options = parser.parse_args()
    clock = time.perf_counter if options.clock == "wall" else time.process_time
    torch.set_num_threads(options.threads)
    start = time.perf_counter()
    worst = check(options.kinds)
    print(
        f"largest relative error {worst:.1e}; compiled or loaded, and checked, in {time.perf_counter() - start:.1f} s"
    )
    print(
        f"{platform.processor() or platform.machine()}, {options.threads} threads, {options.clock} time, "
        f"Python {platform.python_version()}, torch {torch.__version__}, "
        f"numpy {numpy.__version__}, numba {numba.__version__}"
    )
    time_compare(options.kinds, options.dims, options.seconds, clock)
    time_compare_all(options.kinds, [dim for dim in options.dims if dim >= 200], options.seconds, clock)
    time_softmax_nll(options.seconds, clock)


if __name__ == "__main__":
    main()
