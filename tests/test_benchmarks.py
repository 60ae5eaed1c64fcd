"""The parts of the benchmarks that need no GPU: costs, records, targets, the check itself, figures."""

from __future__ import annotations

import json
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks import (
    gpu,
    gpu_check,
    gpu_check_step,
    gpu_kernels,
    gpu_quality,
    gpu_steps,
    gpu_sweep,
    gpu_targets,
    kernel_costs,
    plots,
    speed_record,
)
from benchmarks.gpu_kernels import KernelCase, row_of, sizes_of
from benchmarks.kernel_costs import Cost, Sizes
from benchmarks.timing import Setting, waits, window_ms
from eans import kernels
from eans.errors import UsageError

CPU = torch.device("cpu")
SMALL = Sizes("small", "l1", 3, 2, 5, 8, 8, 11, 2.0, distinct=4)
ABOUT = {"commit": "a", "date": "d", "hardware": {"name": "GPU"}, "versions": {}}


@pytest.fixture(autouse=True)
def _plain_kernels(monkeypatch):
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)  # the suites of the Triton kernels set it
    before = kernels.choose("reference")
    yield
    kernels.choose(before)


# --- costs --------------------------------------------------------------------------------------------------------


def test_costs_by_hand() -> None:
    queries, pairs = 3 * 2 * 8 * 4, 2 * 5 * (2 * 4 + 8)  # bytes of all queries; of all scores and candidates
    assert kernel_costs.forward(SMALL) == Cost(4 * 32 + queries + pairs, 10 * 32 + queries + pairs, 3 * 10 * 8 * 2)
    gradient = 3 * 10 * 8 * 3
    assert kernel_costs.query_gradient(SMALL) == Cost(
        4 * 32 + 2 * queries + pairs, 10 * 32 + 2 * queries + pairs, gradient
    )
    table = 2 * 11 * 32 + pairs + 11 * 8
    assert kernel_costs.entity_gradient(SMALL) == Cost(table + queries, table + 10 * 3 * 32, gradient)
    assert kernel_costs.sort(SMALL) == Cost(2 * 14 * 8 + 88, 2 * 14 * 8 + 88, 0)
    assert kernel_costs.adam(SMALL) == Cost(7 * 11 * 8 * 4, 7 * 11 * 8 * 4, 10 * 88)
    moved = 6 * 11 * 32 + 4 * (32 + 8) + 11 * 16
    assert kernel_costs.update(SMALL) == Cost(moved + pairs + queries, moved + pairs + 10 * 3 * 32, gradient + 10 * 88)
    moved += 11 * (8 + 1) * 4
    assert kernel_costs.update(replace(SMALL, shifted=True)) == Cost(moved, moved, 10 * 88)
    assert kernel_costs.rank_all(SMALL) == Cost((88 + 16 + 22) * 4, (88 + 16 + 22) * 4, 2 * 11 * 8 * 2)
    assert kernel_costs.nearest(10, 6, 2) == Cost(12 * 24 + 120, 12 * 24 + 120, 120)
    assert kernel_costs.group_means(10, 6, 2) == Cost(12 * 24 + 96, 12 * 24 + 96, 60)


def test_costs_of_sampling_loss_and_counting_by_hand() -> None:
    batch, asked = 2 * 8, replace(SMALL, answers=7)
    assert kernel_costs.take(SMALL) == Cost(2 * (16 + 56), 2 * (16 + 56), 0)
    assert kernel_costs.step_along(SMALL) == Cost(10 * 12 + batch + 4 * 8, 10 * 12 + batch + 10 * 8, 0)
    assert kernel_costs.label(asked) == Cost(10 * 9 + batch + 7 * 8, 10 * 9 + batch + 10 * 8, 0)
    assert kernel_costs.loss_terms(SMALL) == Cost(10 * 17 + 24, 10 * 26 + 24, 640)
    scores, keys = 2 * 11 * 4, 2 * 24 + 7 * 8
    assert kernel_costs.count_better(asked) == Cost(scores + keys, scores + 7 * 4 + keys, 3 * 22)


def test_costs_of_complex_and_moved_rows() -> None:
    assert kernel_costs.forward(replace(SMALL, kind="modulus")).instructions == 3 * 10 * 4 * 8
    moved, plain = kernel_costs.forward(replace(SMALL, shifted=True)), kernel_costs.forward(SMALL)
    assert moved.distinct == plain.distinct + 3 * 2 * 8 * 4 + 4 * 4
    assert moved.instructions == plain.instructions * 3 // 2


def test_floor_is_the_larger_of_memory_and_arithmetic() -> None:
    assert Cost(100, 500, 10).floor_seconds(bandwidth=50, rate=10) == 2.0
    assert Cost(100, 500, 30).floor_seconds(bandwidth=50, rate=10) == 3.0


def test_paper_sizes() -> None:
    sizes = sizes_of("fb15k-237/transd/eans+adv")
    assert (sizes.kind, sizes.count, sizes.batch, sizes.negatives) == ("l1", 3, 1024, 256)
    assert (sizes.dim, sizes.stride, sizes.entities, sizes.shifted) == (1000, 2000, 14541, True)
    sizes = sizes_of("wn18rr/complex/eans+adv")
    assert (sizes.kind, sizes.count, sizes.dim, sizes.stride, sizes.entities) == ("dot", 2, 1000, 1000, 40943)
    assert {sizes_of(f"fb15k-237/{m}/eans+adv").stride for m in ("complex", "distmult")} == {2000}


def test_a_kernel_that_fails_is_reported() -> None:
    def broken() -> None:
        raise TypeError("missing argument\nmore")

    row = row_of(KernelCase("new", broken, Cost(4, 4, 4)), Setting(CPU, True), 1.0, 1.0)
    assert row["error"] == "TypeError: missing argument"
    assert "ms" not in row
    row = row_of(KernelCase("good", lambda: None, Cost(8, 16, 0)), Setting(CPU, True), 4e9, 1.0, lambda *_: 1.0)
    found = [row[name] for name in ("floor_ms", "distinct_gb_per_s", "gathered_gb_per_s")]
    assert found == pytest.approx([2e-6, 8e-6, 16e-6])


# --- the check ----------------------------------------------------------------------------------------------------


def test_the_check_passes_and_counts_doubtful_slopes() -> None:
    findings = gpu_check.check(Setting(CPU, quick=True))
    assert all(finding.passed for finding in findings)
    doubtful = {finding.name.partition(":")[0] for finding in findings if finding.doubtful}
    assert {"l1 Q=3 shifted"} <= doubtful <= {"l1 Q=3 shifted", "modulus Q=2 shifted"}


@pytest.mark.parametrize("shape", [gpu_check.Shape("l1", 2, shifted, 5, 7, 22, 31) for shifted in (False, True)])
def test_the_check_finds_a_wrong_slope(monkeypatch: pytest.MonkeyPatch, shape: gpu_check.Shape) -> None:
    true = gpu_check.kernels.compare

    def wrong(kind: Any, queries: Any, *rest: Any) -> Any:
        def bend(gradient: torch.Tensor) -> torch.Tensor:
            gradient = gradient.clone()
            gradient[0, 0, 1] += 1e-3  # a column in which no difference was made tiny
            return gradient

        bent = queries.clone()
        bent.register_hook(bend)
        return true(kind, bent, *rest)

    monkeypatch.setattr(gpu_check.kernels, "compare", wrong)
    failed = [finding.name for finding in gpu_check.check_compare(shape, CPU) if not finding.passed]
    assert [name.partition(": ")[2] for name in failed] == ["queries"]


def test_flipped_signs_are_within_the_allowance() -> None:
    shape = gpu_check.Shape("l1", 1, True, 5, 7, 22, 31)
    case = gpu_check.make_case(shape, CPU)
    wide = gpu_check.widened(case)
    doubts = gpu_check.slope_doubts("l1", wide)
    assert int((doubts > 0).sum()) > 10
    allowed = gpu_check.allowances(wide, doubts)
    exact = gpu_check.results(gpu_check.REFERENCE.compare, "l1", wide)
    # The other sign at every tiny difference: the queries move by a hair towards the other side.
    difference = (
        wide.queries[:, :, None]
        - wide.table[wide.entities]
        - (wide.scalars[wide.entities][..., None] * wide.shifts[:, :, None])
    )
    slope = torch.where(doubts > 0, -difference.sign(), difference.sign())
    flipped = (-wide.outer[..., None] * slope).sum(2)
    assert gpu_check.relative_error(flipped, exact["queries"]) > 1e-3
    assert gpu_check.relative_error(flipped, exact["queries"], allowed["queries"]) < 1e-12


def test_nan_is_an_error() -> None:
    exact = torch.ones(2, dtype=torch.float64)
    assert gpu_check.relative_error(torch.tensor([1.0, float("nan")]), exact) == float("inf")


def bent(function: Any) -> Any:
    """The same with one number of the (first) result a little off, or one label turned."""

    def call(*arguments: Any, **options: Any) -> Any:
        result = function(*arguments, **options)
        first = result[0] if isinstance(result, tuple) else result
        change = torch.zeros(first.numel())
        change[3 % first.numel()] = 1e-3 if first.is_floating_point() else 1
        change = change.view_as(first)
        off = first != change.bool() if first.dtype == torch.bool else first + change.to(first.dtype)
        return (off, *result[1:]) if isinstance(result, tuple) else off

    return call


@pytest.mark.parametrize(
    ("operation", "wrong"),
    [
        ("compare_rows", 3),
        ("complex_product", 2),
        ("project", 2),
        ("loss_terms", 3),
        ("step_along", 1),
        ("label", 2),
        ("take", 1),
        ("count_better", 1),
        ("group_means", 1),
        ("gather", 0),  # the forward pass of a gathering has no part in a gradient
        ("compare", 0),
    ],
)
def test_the_check_finds_wrong_operations(monkeypatch: pytest.MonkeyPatch, operation: str, wrong: int) -> None:
    monkeypatch.setattr(kernels, operation, bent(getattr(kernels, operation)))
    failed = [finding.name for finding in gpu_check_step.check_step(CPU, quick=True) if not finding.passed]
    assert len(failed) == wrong
    assert all(name.startswith(operation) for name in failed)


def test_the_check_finds_a_wrong_update(monkeypatch: pytest.MonkeyPatch) -> None:
    step = gpu_check_step.Adam.step

    def wrong(self: Any) -> None:
        step(self)
        with torch.no_grad():
            self.tables[0][2, 1] += 1e-3

    monkeypatch.setattr(gpu_check_step.Adam, "step", wrong)
    failed = [finding.name for finding in gpu_check_step.check_step(CPU, quick=True) if not finding.passed]
    assert len(failed) == 7
    assert all(name.startswith("Adam") for name in failed)


# --- records ------------------------------------------------------------------------------------------------------


def test_sections_merge_and_keep_their_origin(tmp_path: Path) -> None:
    file = tmp_path / "new" / "speed.json"
    speed_record.update(file, "steps", {"cells": {}}, ABOUT)
    speed_record.update(file, "ranking", {"cells": {"x": 1}}, {**ABOUT, "commit": "b"})
    record = speed_record.update(file, "ranking", {"cells": {"y": 2}}, {**ABOUT, "commit": "c"})
    assert speed_record.read(file) == record == json.loads(file.read_text())
    assert record["commit"] == "c"
    assert record["sections"]["steps"] == {**ABOUT, "cells": {}}
    assert record["sections"]["ranking"]["cells"] == {"y": 2}


def test_other_hardware_does_not_mix(tmp_path: Path) -> None:
    file = tmp_path / "speed.json"
    speed_record.update(file, "steps", {}, ABOUT)
    with pytest.raises(UsageError, match="measurements of 'GPU', this is 'CPU'"):
        speed_record.update(file, "steps", {}, {**ABOUT, "hardware": {"name": "CPU"}})
    file.write_text("{}\n")
    assert speed_record.read(file) == {}
    file.write_text('{"format": 99}')
    with pytest.raises(UsageError, match="format 1"):
        speed_record.read(file)


def test_targets_are_judged_where_measured() -> None:
    cell = {"ms": 0.9, "reorder_ms": 21.0, "peak_bytes": 2**29}
    sections = {"steps": {"cells": {"fb15k-237/transe/eans+adv": cell}}}
    verdicts = gpu_targets.judge(sections)
    assert [(v.target.name, v.passed) for v in verdicts] == [
        ("TransE FB step", True),
        ("TransE FB re-order", False),
        ("TransE FB peak memory", True),
    ]
    assert "MISS" in gpu_targets.text(verdicts)
    assert gpu_targets.judge({}) == []


def test_every_target_has_a_cell() -> None:
    measured = {"steps": {c.key for c in gpu_steps.step_cells()}, "ranking": set(gpu_steps.ranking_recipes())}
    assert all(target.cell in measured[target.section] for target in gpu_targets.TARGETS)


def test_step_cells_cover_models_and_sweeps_once() -> None:
    cells = gpu_steps.step_cells()
    assert len({cell.key for cell in cells}) == len(cells) == 31
    plain = [cell for cell in cells if not cell.sweep]
    assert len(plain) == 17  # five models on two graphs and with rounded rows, TransE with 16 and with 1 negative


def test_windows() -> None:
    calls: list[int] = []
    assert len(window_ms(lambda: calls.append(1), Setting(CPU, True), 3, 4)) == 3
    assert len(calls) == 12


@pytest.mark.parametrize(
    ("module", "name", "kind"), [("blocks", "BLOCK_ELEMENTS", "cpu"), ("kmeans.reference", "GROUP_ROWS", "any")]
)
def test_tiles_are_put_back(module: str, name: str, kind: str) -> None:
    def place() -> gpu_sweep.Place:
        return gpu_sweep.Place(gpu_sweep.Sweep("case", module, name, ()), kind)

    before = place().chosen
    with place().holding(7):
        assert place().chosen == 7
    assert place().chosen == before != 7


def test_sweeps_name_tiles_that_exist() -> None:
    pytest.importorskip("triton")
    for sweep in gpu_sweep.SWEEPS:
        for kind in ("l1", "modulus"):
            chosen = gpu_sweep.Place(sweep, kind).chosen
            assert all(len(type(chosen)(*tile)) == len(chosen) for tile in sweep.tiles)


def test_a_sweep_without_triton() -> None:
    with pytest.raises(UsageError, match="do not run here"):
        gpu_sweep.measure_sweep(Setting(CPU, True))


def test_kernel_cases_of_plain_kernels() -> None:
    for recipe in ("fb15k-237/transd/eans+adv", "wn18rr/complex/eans+adv"):
        step = gpu_kernels.make_step(recipe, Setting(CPU, True))
        rows = [row_of(case, Setting(CPU, True), 1e9, 1e9) for case in gpu_kernels.kernel_cases(step)]
        assert not [row for row in rows if "error" in row]
        assert {"take", "step_along", "label", "forward", "count_better", "group_means"} <= {
            row["name"] for row in rows
        }
        assert step.sizes.distinct <= step.sizes.pairs


def test_waits_are_those_that_pytorch_names() -> None:
    with waits(Setting(CPU)) as found:
        warnings.warn("called a synchronizing CUDA operation", stacklevel=1)
        warnings.warn("a prototype feature and does not yet detect all synchronizing operations", stacklevel=1)
    assert [place.partition(":")[0] for place in found] == ["test_benchmarks.py"]


# --- the program --------------------------------------------------------------------------------------------------


def test_the_program_without_a_gpu(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "speed.json"
    arguments = ["--quick", "--device", "cpu", "--out", str(out)]
    assert gpu.main([*arguments, "--only", "check,kmeans,ranking,all-entities"]) == 0
    assert gpu.main([*arguments, "--only", "quality", "--runs", "wordnet-core/transe/eans"]) == 0
    assert set(speed_record.read(out)["sections"]) == {"check", "kmeans", "ranking", "all-entities", "quality"}
    (run,) = [json.loads(line) for line in (tmp_path / gpu_quality.FILE.name).read_text().splitlines()]
    assert run["curve"][-1]["step"] == 20
    assert all(a["seconds"] <= b["seconds"] for a, b in zip(run["curve"], run["curve"][1:], strict=False))
    assert run["validation_seconds"] > 0
    capsys.readouterr()
    assert gpu.main([*arguments, "--only", "quality", "--runs", "wordnet-core/transe/eans"]) == 0
    assert "has its record already" in capsys.readouterr().out


def test_wrong_kernels_end_the_program(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(gpu, "check", lambda _: [gpu_check.Finding("forward", 1.0)])
    assert gpu.main(["--quick", "--device", "cpu", "--only", "check,kmeans"]) == 1
    assert "kmeans" not in capsys.readouterr().out


def test_arguments() -> None:
    assert gpu.parse_arguments(["--only", "ranking,check"]).only == ["check", "ranking"]
    usual = ["check", "kernels", "steps", "kmeans", "ranking", "samplers", "all-entities"]
    assert gpu.parse_arguments([]).only == usual
    assert gpu.parse_arguments(["--runs", "wordnet-core"]).only[-2:] == ["all-entities", "quality"]
    with pytest.raises(SystemExit):
        gpu.parse_arguments(["--only", "quality"])
    with pytest.raises(SystemExit):
        gpu.parse_arguments(["--only", "speed"])


def test_the_stopwatch_takes_validations_out(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(gpu_quality.time, "perf_counter", lambda: now[0])
    watch = gpu_quality.Stopwatch()
    watch.listener.start(None, None, None)  # type: ignore[arg-type]
    # Ten seconds of training and two of validation, twice.
    for step, before, after in ((1, 10.0, 12.0), (2, 22.0, 24.0)):
        now[0] = 100.0 + after
        watch.listener.log({"step": step, "seconds": before, "valid": {"both": {"mrr": 0.1 * step}}})
        watch.listener.log({"step": step, "loss": 1.0, "seconds": after})
    assert [point["seconds"] for point in watch.curve] == [10.0, 20.0]
    assert watch.validating == 4.0


# --- figures ------------------------------------------------------------------------------------------------------


def made_up_records(folder: Path) -> None:
    """Records with the right shape and invented numbers."""
    cells = {}
    for model, factor in (("transe", 1.0), ("rotate", 1.8)):
        for n, d in [*((n, 1000) for n in gpu_steps.SWEEP_NEGATIVES), *((256, d) for d in gpu_steps.SWEEP_DIMS)]:
            ms = factor * (0.2 + 0.003 * n * d / 1000)
            cells[f"{model} {n} {d}"] = {
                "recipe": f"fb15k-237/{model}/eans+adv", "model": model, "negatives": n, "dim": d, "ms": ms,
            }  # fmt: skip
    speed_record.update(folder / "gpu-speed.json", "steps", {"cells": cells}, ABOUT)
    runs = []
    for n, seconds, best, method in (
        (1, 30, 0.318, "eans"),
        (16, 38, 0.332, "eans"),
        (256, 100, 0.345, "eans+adv"),
        (8, 14, 0.341, "fast"),
    ):
        curve = [{"step": i, "seconds": seconds * i / 20, "mrr": best * (1 - 0.6 * 0.75**i)} for i in range(1, 21)]
        runs.append(
            {"recipe": f"fb15k-237/transe/{method}", "overrides": [], "negatives": n, "curve": curve, "seed": 0}
        )
    (folder / "fast.jsonl").write_text("".join(json.dumps(run) + "\n" for run in runs))
    steps = [
        {"model": model, "dim": dim, "negatives": n, "pykeen": {"seconds": ratio}, "eans adv": {"seconds": 1.0}}
        for model, dim, n, ratio in (
            ("transe", 1000, 256, 14.2),
            ("rotate", 1000, 256, 6.3),
            ("complex", 200, 64, 22.0),
        )
    ]
    ranking = [{"model": "transe", "dim": 200, "pykeen": {"seconds": 9.5}, "eans": {"seconds": 1.0}}]
    (folder / "cpu-speed.json").write_text(json.dumps({"steps": steps, "ranking": ranking, "hardware": "2 x CPU"}))


def test_figures_from_records(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    made_up_records(tmp_path)
    assert plots.draw_all(tmp_path, tmp_path / "figures") == dict.fromkeys(
        ("step-time", "time-to-mrr", "cpu-ratios"), True
    )
    first = {path.name: path.read_bytes() for path in (tmp_path / "figures").iterdir()}
    assert len(first) == 6
    assert all(first.values())
    plots.draw_all(tmp_path, tmp_path / "figures")
    assert first == {path.name: path.read_bytes() for path in (tmp_path / "figures").iterdir()}


def test_no_records_no_figures(tmp_path: Path) -> None:
    assert not any(plots.draw_all(tmp_path, tmp_path / "figures").values())
    assert not (tmp_path / "figures").exists()


def test_curves_from_records(tmp_path: Path) -> None:
    made_up_records(tmp_path)
    record = speed_record.read(tmp_path / "gpu-speed.json")
    lines = plots.sweep(record, "negatives")
    assert [line.label for line in lines] == ["TransE", "RotatE"]
    assert lines[0].x == list(gpu_steps.SWEEP_NEGATIVES)
    assert plots.sweep(record, "dim")[1].x == list(gpu_steps.SWEEP_DIMS)
    assert plots.cpu_ratios({}) == {}


def test_labels_are_spread_apart() -> None:
    places = plots.spread_apart([0.30, 0.301, 0.5], 0.02)
    assert places[1] - places[0] == pytest.approx(0.02)
    assert places[2] == 0.5
    assert plots.decimal_ticks(0.3, 4.0) == pytest.approx([0.2, 0.5, 1.0, 2.0, 5.0])
