"""Graphs that are known by name: the public benchmarks and the ones that come with the package.

A benchmark is looked for in ``$EANS_DATA/<name>/``, then in the user's cache (``$EANS_CACHE/<name>/`` when set), and
else downloaded, or built from packages that others publish, into the cache. Wherever its files come from, they must be
the published ones: a name stands for the same triples, with the same ids, on every machine.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from platformdirs import user_cache_dir

from eans.arguments import called, flag, shown
from eans.data.catalogue import BUILT, BUNDLED, DOWNLOADS, Dataset, Sizes, bundled
from eans.data.checks import check
from eans.data.download import Progress, fetch
from eans.data.findings import Finding
from eans.data.formats import named_as_file
from eans.data.formats.base import ReadOptions
from eans.data.formats.source import STDIN, problems_of
from eans.data.names import name_graph
from eans.data.readers import find_splits, load_folder, missing_split, read_file, read_folder, text_sha256
from eans.errors import DataError, EansWarning, UsageError, did_you_mean
from eans.files import path_text
from eans.graph import SPLITS, KnowledgeGraph

FoundIn = Literal["bundled", "EANS_DATA", "cache"]


@dataclass(frozen=True)
class DatasetInfo:
    """A `Dataset` as this machine sees it.

    Attributes:
        dataset: the entry of the registry.
        sizes: published, or counted for a bundled graph.
        folder: where the files are; None when they must be downloaded first.
        found_in: what led to `folder`.
    """

    dataset: Dataset
    sizes: Sizes
    folder: Path | None
    found_in: FoundIn | None


def datasets() -> tuple[Dataset, ...]:
    """Every graph that has a name: the bundled ones first."""
    folders = sorted(path for path in BUNDLED.glob("*") if path.is_dir() and not path.name.startswith(("_", ".")))
    return (*map(bundled, folders), *DOWNLOADS, *BUILT)


def load(
    name_or_path: str | Path,
    *,
    download: bool = True,
    strict: bool = False,
    progress: Progress | None = None,
    report: Callable[[Finding], None] | None = None,
    columns: Mapping[str, str | int] | str | None = None,
    query: str | None = None,
    literals: bool = False,
    labels: str | Path | Sequence[str | Path] | None = None,
) -> KnowledgeGraph:
    """Load a graph by name; from a file; or from a folder of train, valid and test files, of which two may be missing.

    A file is TSV, CSV, Parquet, Feather, JSON lines, RDF or a database, packed or not, and all of it is train;
    `eans.split` splits it. The files of a folder may be any of these too. They are checked for what is probably a
    mistake: duplicate triples, triples of test that are in train, a header line, columns in another order, labels that
    look the same, files that are not read, and more. A graph with a name is as it was published, and is not checked.

    Args:
        name_or_path: a string that is a registered name means that graph; anything else is a file or a folder, ``"-"``
            standard input.
        download: whether a benchmark that is not on this machine may be downloaded or built.
        strict: whether a finding of the checks is a `DataError`.
        progress: told of the bytes of a download, and of the steps of building, as ``progress(what, done, total)``.
        report: called with each finding; without it they are warnings, `EansWarning`.
        columns: which columns are which: ``{"head": "subject", "weight": "confidence"}``, or numbers from 1; parts are
            head, relation, tail, weight and time. Those that are not named are found by their usual names.
        query: SQL that selects the triples from a database.
        literals: keep RDF literals as entities; otherwise their triples are left out and counted.
        labels: a file or files with readable names, lines ``id<TAB>name``, or ``id,name`` in a ``.csv`` file; see
            `KnowledgeGraph.with_names`.
    """
    if labels is not None:
        told = {"download": download, "strict": strict, "progress": progress, "report": report}
        graph = load(name_or_path, columns=columns, query=query, literals=literals, **told)  # type: ignore[arg-type]
        return name_graph(graph, labels, report)
    if not isinstance(name_or_path, str | Path):
        raise UsageError(f"a dataset is given by its name or the path of a file or folder, got {shown(name_or_path)}")
    download, strict = flag("download", download), flag("strict", strict)
    progress, report = called("progress", progress), called("report", report)
    options = ReadOptions.of(columns, query, literals)
    if isinstance(name_or_path, str) and is_registered(name_or_path):
        if options != ReadOptions():
            raise UsageError(
                f"columns, query and literals are for files and folders, and '{name_or_path}' is a dataset"
            )
        folder = get(name_or_path, download=download, progress=progress)
        # Dict files beside a benchmark are left aside: the ids should not depend on where the files were found.
        graph = load_folder(folder, name=name_or_path, use_dicts=_lookup(name_or_path).bundled)
        return replace(graph, source=name_or_path)
    path, findings = Path(name_or_path), list[Finding]()
    looks_like_path = isinstance(name_or_path, Path) or "/" in name_or_path or os.sep in name_or_path
    if not (looks_like_path or named_as_file(path) or name_or_path == STDIN or os.path.lexists(name_or_path)):
        raise _unknown(str(name_or_path))
    if is_file(path):
        graph, sources = read_file(path, options, findings.append)
    else:  # a graph of one's own may have nothing held out
        graph, sources = read_folder(path, (), None, True, options, findings.append)
    findings += check(graph, path, sources)
    if strict and findings:
        more = f" (and {len(findings) - 1} more, which are shown without strict)" if len(findings) > 1 else ""
        raise DataError(f"{findings[0].message}{more}")
    for finding in findings:
        if report is not None:
            report(finding)
        else:
            warnings.warn(finding.message, EansWarning, stacklevel=2)
    return replace(graph, source="" if str(path) == STDIN else path_text(path.resolve()))


def get(name: str, *, download: bool = True, progress: Progress | None = None) -> Path:
    """Make sure that the graph `name` is on this machine, complete and as published; return its folder."""
    dataset = _lookup(name)
    if dataset.folder is not None:
        return dataset.folder
    folder, _ = _locate(dataset)
    if folder is None:
        if not download:
            raise DataError(f"{name}: not on this machine; allow the download or {_by_hand(dataset)}")
        folder = _build(dataset, progress) if dataset.kind == "built" else _download(dataset, progress)
    _verify(dataset, folder)
    return folder


def info(name: str) -> DatasetInfo:
    """Sizes of the graph `name` and where this machine has it. Downloads and verifies nothing."""
    dataset = _lookup(name)
    return DatasetInfo(dataset, sizes(name), *_locate(dataset))


def is_registered(name: str) -> bool:
    """Whether `load` takes this for the name of a graph, and not for a folder."""
    return name in _by_name()


def is_file(path: Path) -> bool:
    """Whether this is one file, a pipe or standard input, of triples that nobody has split."""
    with problems_of(path, None):
        return str(path) == STDIN or (path.exists() and not path.is_dir())


def is_here(name_or_path: str) -> bool:
    """Whether `load` would download and build nothing."""
    return not is_registered(name_or_path) or _locate(_lookup(name_or_path))[0] is not None


def sizes(name_or_path: str) -> Sizes:
    """As published, or counted where nothing was: a bundled graph, or one in a folder."""
    published = _lookup(name_or_path).sizes if is_registered(name_or_path) else None
    if published is not None:
        return published
    graph = load(name_or_path, report=lambda _: None)  # whoever goes on to use it is told
    return Sizes(graph.num_entities, graph.num_relations, *(len(graph.split(split)) for split in SPLITS))


def bundled_name() -> str:
    """The graph that is used when none is named."""
    return next(dataset.name for dataset in datasets() if dataset.bundled)


def cache_folder() -> Path:
    """Where downloads are kept."""
    return Path(os.environ.get("EANS_CACHE") or user_cache_dir("eans"))


def _by_name() -> dict[str, Dataset]:
    return {dataset.name: dataset for dataset in datasets()}


def _lookup(name: str) -> Dataset:
    known = _by_name()
    if name not in known:
        raise _unknown(name, or_folder=False)
    return known[name]


def _unknown(name: str, or_folder: bool = True) -> UsageError:
    names = list(_by_name())
    folder = "; or give the path of a file or folder" if or_folder else ""
    return UsageError(f"unknown dataset '{name}'{did_you_mean(name, names)} (known: {', '.join(names)}{folder})")


def _by_hand(dataset: Dataset) -> str:
    if os.environ.get("EANS_DATA"):
        return f"put the files into $EANS_DATA/{dataset.name}/"
    return f"set EANS_DATA to a folder and put the files into {dataset.name}/ there"


def _locate(dataset: Dataset) -> tuple[Path | None, FoundIn | None]:
    """The folder to use without a download, and what led there.

    In ``$EANS_DATA`` a folder is the user's word, complete or not; in the cache an incomplete one is a download that
    was cut short.
    """
    if dataset.folder is not None:
        return dataset.folder, "bundled"
    if own := os.environ.get("EANS_DATA"):
        if not Path(own).is_dir():
            raise DataError(f"EANS_DATA={own}: no such folder; correct or unset the variable")
        folder = Path(own) / dataset.name
        if folder.exists():
            return folder, "EANS_DATA"
    folder = cache_folder() / dataset.name
    if folder.is_dir() and len(find_splits(folder)) == len(SPLITS):
        return folder, "cache"
    return None, None


def _download(dataset: Dataset, progress: Progress | None) -> Path:
    folder = cache_folder() / dataset.name
    present = find_splits(folder) if folder.is_dir() else {}
    urls = dataset.urls
    for split, source in dataset.sources.items():
        if split not in present:
            target = folder / f"{split}.txt"
            fetch(urls[split], target, source.download_sha256, otherwise=_by_hand(dataset), progress=progress)
    return folder


def _build(dataset: Dataset, progress: Progress | None) -> Path:
    from eans.data.building import build  # readers of archives, which most runs do without

    folder = cache_folder() / dataset.name
    build(dataset.name, folder, dataset.sha256, otherwise=_by_hand(dataset), progress=progress)
    return folder


def _verify(dataset: Dataset, folder: Path) -> None:
    files = find_splits(folder)
    for split, expected in dataset.sha256.items():
        if split not in files:
            raise missing_split(folder, split)
        found = text_sha256(files[split])
        if found != expected:
            raise DataError(
                f"{files[split]}: is not the published {dataset.name} {split} split; its text has SHA-256 "
                f"{found[:12]}… instead of {expected[:12]}…; delete it or load the folder by path"
            )
