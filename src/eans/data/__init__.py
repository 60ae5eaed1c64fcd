"""Graphs from disk: folders of triples, and benchmarks by name."""

from eans.data.download import Progress
from eans.data.readers import load_folder
from eans.data.registry import (
    Dataset,
    DatasetInfo,
    Sizes,
    Source,
    bundled_name,
    cache_folder,
    datasets,
    get,
    info,
    is_here,
    is_registered,
    load,
    sizes,
)

__all__ = [
    "Dataset",
    "DatasetInfo",
    "Progress",
    "Sizes",
    "Source",
    "bundled_name",
    "cache_folder",
    "datasets",
    "get",
    "info",
    "is_here",
    "is_registered",
    "load",
    "load_folder",
    "sizes",
]
