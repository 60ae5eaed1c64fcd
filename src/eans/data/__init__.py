"""Graphs from disk: files and folders of triples, and benchmarks by name."""

from eans.data.catalogue import Dataset, Kind, Sizes, Source
from eans.data.checks import check_test
from eans.data.download import Progress
from eans.data.findings import Finding
from eans.data.readers import load_folder, read_triples
from eans.data.registry import (
    DatasetInfo,
    bundled_name,
    cache_folder,
    datasets,
    get,
    info,
    is_file,
    is_here,
    is_registered,
    load,
    sizes,
)
from eans.data.writing import save_folder

__all__ = [
    "Dataset",
    "DatasetInfo",
    "Finding",
    "Kind",
    "Progress",
    "Sizes",
    "Source",
    "bundled_name",
    "cache_folder",
    "check_test",
    "datasets",
    "get",
    "info",
    "is_file",
    "is_here",
    "is_registered",
    "load",
    "load_folder",
    "read_triples",
    "save_folder",
    "sizes",
]
