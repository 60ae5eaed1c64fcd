"""The command line: parse, make one library call, print.

Heavy imports happen inside the commands, so that ``eans --help`` answers at once. Exit status: 0 for success, 1 for a
run that failed, 2 for a mistake in the call, 130 for an interruption.
"""

from __future__ import annotations

import errno
import os
import sys
import threading
from pathlib import Path
from typing import Annotated, Any

import typer

from eans._version import __version__
from eans.errors import EansError, Interrupted, UsageError
from eans.stopping import stop_while_importing

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Knowledge-graph embeddings with entity-aware negative sampling.",
)
data_app = typer.Typer(no_args_is_help=True, help="Datasets: list them, look at one, fetch one.")
recipes_app = typer.Typer(help="Recipes: list them, show one, list the keys.")
inspect_app = typer.Typer(no_args_is_help=True, help="Look inside: a report on a run, the negatives of a sampler.")
app.add_typer(data_app, name="data")
app.add_typer(recipes_app, name="recipes")
app.add_typer(inspect_app, name="inspect")

STATUS: dict[type[EansError], int] = {UsageError: 2, Interrupted: 130, EansError: 1}
DEFAULT_RECORDS = Path("records/paper")
DeviceOption = Annotated[str, typer.Option(help="auto, cpu or cuda.")]


@app.callback(invoke_without_command=True)
def _options(version: Annotated[bool, typer.Option("--version", help="Print the version and exit.")] = False) -> None:
    if version:
        typer.echo(f"eans {__version__}")
        raise typer.Exit


@app.command()
def train(
    recipe: Annotated[
        str | None, typer.Argument(help="Recipe name (see `eans recipes`) or TOML file. Default: the dataset's own.")
    ] = None,
    data: Annotated[str | None, typer.Option(help="Dataset name or folder. Default: the recipe's.")] = None,
    out: Annotated[Path | None, typer.Option(help="Run folder to create. Default: a new one under runs/.")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Short for --set train.seed=N.")] = None,
    device: DeviceOption = "auto",
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a recipe key; repeatable.")
    ] = None,
    resume: Annotated[Path | None, typer.Option(help="Continue an interrupted run folder.")] = None,
) -> None:
    """Train a model, evaluate it, and keep everything in a run folder."""
    if resume is not None:
        if recipe is not None or data is not None or out is not None or seed is not None or set_:
            raise UsageError(
                "--resume continues a run as it was: give no recipe, --data, --out, --seed or --set with it"
            )
        from eans.display import resume_with_display

        resume_with_display(resume, device)
        return
    from eans.display import train_with_display

    overrides = [*(set_ or []), *([f"train.seed={seed}"] if seed is not None else [])]
    train_with_display(recipe, data, out, device, overrides)


@app.command()
def evaluate(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    split: Annotated[str, typer.Option(help="train, valid or test.")] = "test",
    ties: Annotated[str, typer.Option(help="realistic, optimistic or pessimistic.")] = "realistic",
    json: Annotated[bool, typer.Option("--json", help="Print JSON: everything, also by relation.")] = False,
    device: DeviceOption = "auto",
) -> None:
    """Rank a split with a trained model: filtered MR, MRR and Hits@k."""
    from eans.display import evaluate_with_display

    evaluate_with_display(run, split, ties, json, device)


@app.command()
def predict(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    head: Annotated[str | None, typer.Option(help="Head entity.")] = None,
    relation: Annotated[str | None, typer.Option(help="Relation.")] = None,
    tail: Annotated[str | None, typer.Option(help="Tail entity.")] = None,
    k: Annotated[int, typer.Option("-k", help="How many.")] = 10,
    known: Annotated[str, typer.Option(help="filter: leave known triples out. mark: keep and mark them.")] = "filter",
    format: Annotated[str, typer.Option(help="table, csv or json.")] = "table",
    device: DeviceOption = "auto",
) -> None:
    """Complete a triple: give two of --head, --relation, --tail."""
    from eans.display import predict_with_display

    predict_with_display(run, {"head": head, "relation": relation, "tail": tail}, k, known, format, device)


@data_app.command("list")
def data_list() -> None:
    """All registered datasets."""
    from eans.display import show_datasets

    show_datasets()


@data_app.command("info")
def data_info(name: Annotated[str, typer.Argument(help="Dataset name or folder.")]) -> None:
    """Sizes, relations and origin of a dataset."""
    from eans.display import show_dataset

    show_dataset(name)


@data_app.command("get")
def data_get(name: Annotated[str, typer.Argument(help="Dataset name.")]) -> None:
    """Make sure that a dataset is on this machine; print its folder."""
    from eans.display import fetch_dataset

    fetch_dataset(name)


@recipes_app.callback(invoke_without_command=True)
def recipes_list(context: typer.Context) -> None:
    """All recipes."""
    if context.invoked_subcommand is None:
        from eans.display import show_recipes

        show_recipes()


@recipes_app.command("show")
def recipes_show(name: Annotated[str, typer.Argument(help="Recipe name or TOML file.")]) -> None:
    """A recipe as TOML, all defaults filled in."""
    from eans.recipes import load, to_toml

    typer.echo(to_toml(load(name)), nl=False)


@recipes_app.command("keys")
def recipes_keys() -> None:
    """Every key a recipe may set, with its default and meaning."""
    from eans.display import show_keys

    show_keys()


@inspect_app.command("run")
def inspect_run(
    run: Annotated[Path, typer.Argument(help="Run folder.")],
    out: Annotated[Path | None, typer.Option(help="File to write. Default: report.html in the run folder.")] = None,
    format: Annotated[str, typer.Option(help="html, or json for the numbers.")] = "html",
    split: Annotated[str, typer.Option(help="train, valid or test: for relations and examples.")] = "test",
    device: DeviceOption = "auto",
) -> None:
    """Write a report on a run: metrics, curves, scores, relations, misses; one HTML file that needs nothing else."""
    from eans.display_inspection import report_with_display

    report_with_display(run, out, format, split, device)


@inspect_app.command("sampler")
def inspect_sampler(
    what: Annotated[list[str], typer.Argument(metavar="RECIPE|RUN...", help="Recipes to train, or run folders.")],
    data: Annotated[str | None, typer.Option(help="Dataset name or folder. Default: the recipe's.")] = None,
    steps: Annotated[int | None, typer.Option(help="Stop after so many steps. Default: the recipe's.")] = None,
    every: Annotated[int | None, typer.Option(help="Steps between two looks. Default: ten looks.")] = None,
    probe: Annotated[int, typer.Option(help="How many training triples to look at.")] = 2048,
    out: Annotated[Path | None, typer.Option(help="Folder for the numbers and a figure over the steps.")] = None,
    format: Annotated[str, typer.Option(help="table, csv or json.")] = "table",
    seed: Annotated[int | None, typer.Option(min=0, help="Short for --set train.seed=N.")] = None,
    device: DeviceOption = "auto",
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Override a recipe key; repeatable.")
    ] = None,
) -> None:
    """How hard, how wrong, how varied and how dear negatives are; several samplers side by side."""
    from eans.display_inspection import inspect_with_display

    overrides = [*(set_ or []), *([f"train.seed={seed}"] if seed is not None else [])]
    inspect_with_display(what, data, steps, every, probe, out, format, device, overrides)


RecordsOption = Annotated[Path, typer.Option(help="Folder of run records.")]
OnlyOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE,...",
        help="Only cells with these values, for example model=rotate; repeatable, and a key given twice: either. Keys:"
        " dataset, model, method, sampler, negatives, self_adversarial, gaussian, substitution, step, own, and question"
        " for the table choices.",
    ),
]
CellsOption = Annotated[
    Path | None, typer.Option(help="Published cells of another file, a TOML. Default: the paper's.")
]
TablesArgument = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TABLE|FIGURE",
        help="The paper's tables: main, variance, small-n, one-negative, ablation, score-gap; its figures: small-n,"
        " negative-cdf, substitution-histogram. More: the figure order (the line of entities); the tables best (the"
        " best recipes against the best published) and choices (what the paper leaves open). Default: the paper's, and"
        " order.",
    ),
]


@app.command()
def reproduce(
    tables: TablesArgument = None,
    only: OnlyOption = None,
    seeds: Annotated[int, typer.Option(help="Run seeds 0 up to this number.")] = 3,
    device: DeviceOption = "auto",
    records: RecordsOption = DEFAULT_RECORDS,
    cells: CellsOption = None,
    workers: Annotated[
        str,
        typer.Option(
            metavar="auto|N",
            help="Runs at a time. auto: one, but four with few negatives on a GPU on which CUDA MPS is running.",
        ),
    ] = "auto",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the plan and stop.")] = False,
) -> None:
    """Run what tables and figures need and has no record yet, then report. Ctrl-C loses nothing."""
    from eans.display_reproduction import reproduce_with_display

    done = reproduce_with_display(
        tables or [],
        ",".join(only or []),
        seeds,
        device,
        records,
        cells,
        workers,
        dry_run,
        timed_by=DEFAULT_RECORDS,
    )
    if not done:
        raise typer.Exit(1)


@app.command()
def report(
    tables: TablesArgument = None,
    only: OnlyOption = None,
    records: RecordsOption = DEFAULT_RECORDS,
    cells: CellsOption = None,
    format: Annotated[str, typer.Option(help="table, markdown, latex, csv or json.")] = "table",
    out: Annotated[Path | None, typer.Option(help="Folder for the tables in all formats, and the figures.")] = None,
    page: Annotated[
        Path | None,
        typer.Option(
            help="Write the page of the documentation to this file instead, its figures to figures/ beside it."
        ),
    ] = None,
) -> None:
    """The paper's tables and more, published and measured side by side, from run records."""
    from eans.display_report import report_cells_with_display

    report_cells_with_display(tables or [], ",".join(only or []), records, cells, format, out, page)


def main(arguments: list[str] | None = None) -> None:
    """Entry point of the `eans` command."""
    # A thread of PyTorch's that waits for another one should sleep, not spin: where other programs use the cores too,
    # the one it waits for may not get to run. Operations that are not worth waking threads for
    # use one, see `eans.kernels.small_operations`. Read when PyTorch is loaded.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    if threading.current_thread() is threading.main_thread():
        stop_while_importing()
    command: Any = typer.main.get_command(app)
    try:
        status = command.main(args=arguments, prog_name="eans", standalone_mode=False)
    except EansError as error:
        _fail(str(error), next(status for kind, status in STATUS.items() if isinstance(error, kind)))
    except KeyboardInterrupt:
        _fail("interrupted", STATUS[Interrupted])
    except (MemoryError, RuntimeError) as error:
        if "memory" not in str(error).lower() and not isinstance(error, MemoryError):
            raise
        _fail("not enough memory; lower model.dim, train.batch_size or sampler.negatives", 1)
    except BrokenPipeError:  # the reader, such as `head`, has gone
        sys.stderr.close()
        sys.exit(1)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        sys.stdout = None  # what waits to be written would fail again
        _fail("no space left on the device that the output goes to", 1)
    except Exception as error:
        # Typer reports wrong options by exceptions of its own that know how to show themselves.
        if hasattr(error, "show") and hasattr(error, "exit_code"):
            context: Any = getattr(error, "ctx", None)
            options = [] if context is None else [option.name for option in context.command.params]
            if "unexpected extra argument" in str(error) and "=" in str(error) and "set_" in options:
                _fail(f"{str(error).rstrip('.')}; settings are given with --set KEY=VALUE", error.exit_code)
            error.show()
            sys.exit(error.exit_code)
        raise
    if status == STATUS[Interrupted]:  # what Typer makes of Ctrl-C
        _fail("interrupted", status)
    sys.exit(status if isinstance(status, int) else 0)


def _fail(message: str, status: int) -> None:
    print(f"eans: error: {message}", file=sys.stderr)
    sys.exit(status)
