"""Graphs by name: look-up order, verification, and downloads from a real local server."""

import gzip
import hashlib
import os
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import socket

import pytest

from eans.data import (
    Dataset,
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
    registry,
    sizes,
)
from eans.data.catalogue import FB15K_237, PUBLIC_COPIES
from eans.errors import DataError, UsageError
from eans.graph import SPLITS

TEXT = {"train": b"a\tr\tb\n" * 30_000, "valid": b"b\tr\ta\n", "test": b"a\tr\tc\n"}
SERVED = {split: text.replace(b"\n", b"\r\n") for split, text in TEXT.items()}


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


TOY = Dataset(
    "toy",
    "a graph for tests",
    "free",
    Sizes(entities=3, relations=1, train=30_000, valid=1, test=1),
    {split: Source(f"TOY/{split}.txt", digest(TEXT[split]), digest(SERVED[split])) for split in SPLITS},
)


class Server(ThreadingHTTPServer):
    """Serves `files`; `lengths` lies about the size of some, None leaves it out."""

    daemon_threads = True

    def __init__(self, dataset: Dataset) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files = {f"/mirror/{source.path}": SERVED[split] for split, source in dataset.sources.items()}
        self.lengths: dict[str, int | None] = {}
        self.requests: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/mirror"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        self.server.requests.append(self.path.rpartition("/")[2])
        if self.path not in self.server.files:
            self.send_error(404)
            return
        data = self.server.files[self.path]
        length = self.server.lengths.get(self.path, len(data))
        self.send_response(200)
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *args: object) -> None:
        pass

    def handle(self) -> None:
        with suppress(ConnectionError):  # a client that went away
            super().handle()


BY_HAND = "set EANS_DATA to a folder and put the files into toy/ there"


@pytest.fixture(autouse=True)
def _no_outside(monkeypatch, tmp_path):
    """No test reaches the user's own folders or the network by accident."""
    monkeypatch.delenv("EANS_DATA", raising=False)
    monkeypatch.setenv("EANS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("EANS_MIRROR", "http://127.0.0.1:9/none")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


@pytest.fixture
def toy(monkeypatch) -> Dataset:
    monkeypatch.setattr(registry, "DOWNLOADS", (*registry.DOWNLOADS, TOY))
    return TOY


@pytest.fixture
def server(monkeypatch, toy) -> Iterator[Server]:
    with Server(toy) as running:
        monkeypatch.setenv("EANS_MIRROR", running.url + "/")
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.rglob("*") if path.is_file())


def put(folder: Path, texts: dict[str, bytes]) -> Path:
    folder.mkdir(parents=True)
    for split, text in texts.items():
        (folder / f"{split}.txt").write_bytes(text)
    return folder


def error_of(name: str = "toy") -> str:
    with pytest.raises(DataError) as caught:
        get(name)
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message


# --- downloads ----------------------------------------------------------------------------------------------------


def test_download_then_cache(server, tmp_path, capfd):
    graph = load("toy")
    assert graph.name == "toy"
    assert dict(graph.sha256) == TOY.sha256
    assert len(graph.train) == 30_000
    assert server.requests == ["train.txt", "valid.txt", "test.txt"]
    assert files(tmp_path / "cache") == ["test.txt", "train.txt", "valid.txt"]
    assert (tmp_path / "cache/toy/valid.txt").read_bytes() == SERVED["valid"]
    assert load("toy").name == "toy"
    assert get("toy") == tmp_path / "cache/toy"
    assert len(server.requests) == 3
    assert capfd.readouterr() == ("", "")


@pytest.mark.usefixtures("server")
def test_progress_is_told():
    calls: list[tuple[str, int, int]] = []
    get("toy", progress=lambda *call: calls.append(call))
    train = [call for call in calls if call[0] == "toy/train.txt"]
    size = len(SERVED["train"])
    assert len(train) > 2
    assert [done for _, done, _ in train] == sorted(done for _, done, _ in train)
    assert train[-1] == ("toy/train.txt", size, size)
    assert {call[0] for call in calls} == {f"toy/{split}.txt" for split in SPLITS}


def test_progress_without_a_length(server):
    server.lengths["/mirror/TOY/train.txt"] = None
    calls: list[tuple[str, int, int]] = []
    get("toy", progress=lambda *call: calls.append(call))
    assert {total for file, _, total in calls if file == "toy/train.txt"} == {0}


def test_missing_on_the_server(server, tmp_path):
    del server.files["/mirror/TOY/valid.txt"]
    url = f"{server.url}/TOY/valid.txt"
    assert error_of() == f"{url}: the server answered HTTP 404; try again later or {BY_HAND}"
    assert files(tmp_path / "cache") == ["train.txt"]
    assert info("toy").folder is None
    server.files["/mirror/TOY/valid.txt"] = SERVED["valid"]
    get("toy")
    assert server.requests == ["train.txt", "valid.txt", "valid.txt", "test.txt"]  # train was good already


@pytest.mark.parametrize("length", ["announced", "unknown"])
def test_truncated_body(server, tmp_path, length):
    path = "/mirror/TOY/train.txt"
    server.lengths[path] = len(SERVED["train"]) if length == "announced" else None
    server.files[path] = SERVED["train"][:100_000]
    message = error_of()
    assert message.startswith(f"{server.url}/TOY/train.txt: ")
    expected = (
        "the connection broke before the end" if length == "announced" else "the 100000 bytes received have SHA-256"
    )
    assert expected in message
    assert message.endswith(f"; try again or {BY_HAND}")
    assert files(tmp_path) == []


def test_wrong_hash(server, tmp_path):
    server.files["/mirror/TOY/train.txt"] = TEXT["train"]  # the right text, yet not the bytes that are published
    found, expected = digest(TEXT["train"])[:12], digest(SERVED["train"])[:12]
    assert error_of() == (
        f"{server.url}/TOY/train.txt: the 180000 bytes received have SHA-256 {found}… instead of {expected}…; "
        f"try again or {BY_HAND}"
    )
    assert files(tmp_path) == []


@pytest.mark.parametrize("stop", [KeyboardInterrupt, ZeroDivisionError])
@pytest.mark.usefixtures("server")
def test_interrupted_leaves_nothing(tmp_path, stop):
    seen: list[list[str]] = []

    def interrupt(file: str, done: int, total: int) -> None:  # noqa: ARG001
        seen.append(files(tmp_path))
        raise stop

    with pytest.raises(stop):
        get("toy", progress=interrupt)
    assert [len(names) for names in seen] == [1]
    assert seen[0][0].startswith(".train.txt.")  # half a file never has the final name
    assert files(tmp_path) == []
    get("toy")


@pytest.mark.usefixtures("server")
def test_parts_of_killed_processes_are_removed(tmp_path):
    folder = tmp_path / "cache/toy"
    folder.mkdir(parents=True)
    (folder / ".train.txt.0.part").touch()
    os.utime(folder / ".train.txt.0.part", (0, 0))
    (folder / ".train.txt.1.part").touch()  # another process may be writing this one
    get("toy")
    assert files(folder) == [".train.txt.1.part", "test.txt", "train.txt", "valid.txt"]


@pytest.mark.usefixtures("toy")
def test_no_network(monkeypatch, tmp_path):
    with closing(socket()) as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    monkeypatch.setenv("EANS_MIRROR", f"http://127.0.0.1:{port}")
    url = f"http://127.0.0.1:{port}/TOY/train.txt"
    assert error_of() == f"{url}: the connection failed; check the network or {BY_HAND}"
    assert files(tmp_path) == []


@pytest.mark.usefixtures("toy")
def test_address_that_is_none(monkeypatch):
    monkeypatch.setenv("EANS_MIRROR", "nonsense")
    message = error_of()
    assert message.startswith("nonsense/TOY/train.txt: Invalid URL")
    assert message.endswith(f"check the address or {BY_HAND}")


def test_cache_that_cannot_be_written(server, monkeypatch, tmp_path):
    (tmp_path / "file").touch()
    monkeypatch.setenv("EANS_CACHE", str(tmp_path / "file"))
    message = error_of()
    assert message.startswith(f"{tmp_path / 'file' / 'toy'}: cannot be written (")
    assert message.endswith("set EANS_CACHE to another folder")
    assert server.requests == []


def test_download_forbidden(server, monkeypatch, tmp_path):
    expected = f"^toy: not on this machine; allow the download or {BY_HAND}$"
    with pytest.raises(DataError, match=expected):
        load("toy", download=False)
    monkeypatch.setenv("EANS_DATA", str(tmp_path))
    with pytest.raises(DataError, match=r"allow the download or put the files into \$EANS_DATA/toy/$"):
        load("toy", download=False)
    assert server.requests == []


# --- look-up and verification -------------------------------------------------------------------------------------


@pytest.mark.parametrize("texts", [TEXT, SERVED], ids=["LF", "CRLF"])
def test_own_folder_comes_first(server, monkeypatch, tmp_path, texts):
    get("toy")
    own = put(tmp_path / "own/toy", texts)
    assert (info("toy").folder, info("toy").found_in) == (tmp_path / "cache/toy", "cache")
    monkeypatch.setenv("EANS_DATA", str(tmp_path / "own"))
    assert get("toy") == own
    assert (info("toy").folder, info("toy").found_in) == (own, "EANS_DATA")
    assert dict(load("toy").sha256) == TOY.sha256
    assert len(server.requests) == 3


@pytest.mark.usefixtures("server")
def test_own_folder_without_this_graph_falls_through(monkeypatch, tmp_path):
    monkeypatch.setenv("EANS_DATA", str(tmp_path))
    assert get("toy") == tmp_path / "cache/toy"


@pytest.mark.usefixtures("toy")
def test_own_folder_that_does_not_exist(monkeypatch, tmp_path):
    monkeypatch.setenv("EANS_DATA", str(tmp_path / "absent"))
    assert error_of() == f"EANS_DATA={tmp_path / 'absent'}: no such folder; correct or unset the variable"


@pytest.mark.usefixtures("toy")
def test_own_folder_incomplete(monkeypatch, tmp_path):
    own = put(tmp_path / "own/toy", {"train": TEXT["train"]})
    monkeypatch.setenv("EANS_DATA", str(tmp_path / "own"))
    assert error_of().startswith(f"{own}: the valid split is missing; looked for valid.txt, ")


@pytest.mark.parametrize("place", ["EANS_DATA", "EANS_CACHE"])
@pytest.mark.usefixtures("toy")
def test_altered_files_are_errors(monkeypatch, tmp_path, place):
    other = TEXT["valid"] * 2
    own = put(tmp_path / "own/toy", TEXT | {"valid": other})
    monkeypatch.setenv(place, str(tmp_path / "own"))
    assert error_of() == (
        f"{own / 'valid.txt'}: is not the published toy valid split; its text has SHA-256 {digest(other)[:12]}… "
        f"instead of {TOY.sha256['valid'][:12]}…; delete it or load the folder by path"
    )
    monkeypatch.chdir(own.parent)
    for folder in (own, "./toy", Path("toy")):
        assert len(load(folder, report=lambda _: None).valid) == 2


@pytest.mark.usefixtures("toy")
def test_ids_do_not_depend_on_dict_files(monkeypatch, tmp_path):
    own = put(tmp_path / "own/toy", TEXT)
    (own / "entities.dict").write_text("0\tc\n1\tb\n2\ta\n")
    monkeypatch.setenv("EANS_DATA", str(tmp_path / "own"))
    assert load("toy").entities.labels == ("a", "b", "c")
    assert load(own, report=lambda _: None).entities.labels == ("c", "b", "a")


def test_default_cache(monkeypatch, tmp_path):
    assert cache_folder() == tmp_path / "cache"
    monkeypatch.setenv("EANS_CACHE", "")
    assert "eans" in cache_folder().parts


# --- names --------------------------------------------------------------------------------------------------------


def test_registered_benchmarks(monkeypatch):
    monkeypatch.delenv("EANS_MIRROR")
    names = [dataset.name for dataset in datasets()]
    assert names[-7:] == ["fb15k-237", "wn18rr", "nations", "umls", "kinships", "wordnet", "debian"]
    assert len(set(names)) == len(names)
    fb = info("fb15k-237").dataset
    assert fb.urls["valid"] == f"{PUBLIC_COPIES}/FB15k-237/valid.txt"
    assert not fb.bundled
    assert fb.sources["train"].sha256 != fb.sources["train"].download_sha256
    assert hash(fb) != hash(replace(fb, name="other"))
    report = info("wn18rr")
    assert (report.sizes.entities, report.sizes.test, report.folder) == (40_943, 3_134, None)


def test_bundled_graphs_are_found_by_their_folder(monkeypatch, tmp_path):
    folder = tmp_path / "bundled/tiny"
    folder.mkdir(parents=True)
    (tmp_path / "bundled/__pycache__").mkdir()
    for split in SPLITS:
        (folder / f"{split}.txt.gz").write_bytes(gzip.compress(b"a\tr\tb\n"))
    (folder / "DESCRIPTION").write_text("A tiny graph.\nCC0\n")
    monkeypatch.setattr(registry, "BUNDLED", tmp_path / "bundled")
    tiny = datasets()[0]
    assert [dataset.name for dataset in datasets()][:3] == ["tiny", "fb15k-237", "wn18rr"]
    assert (tiny.description, tiny.licence) == ("A tiny graph.", "CC0")
    assert get("tiny") == folder
    report = info("tiny")
    assert report.sizes == Sizes(2, 1, 1, 1, 1)
    assert (report.folder, report.found_in, report.dataset.bundled) == (folder, "bundled", True)
    assert load("tiny", download=False).name == "tiny"


@pytest.mark.parametrize("bundled", [dataset.name for dataset in datasets() if dataset.bundled])
def test_bundled_graphs_load(bundled):
    graph = load(bundled)
    assert graph.name == bundled
    assert all(len(graph.split(split)) for split in SPLITS)
    assert info(bundled).dataset.licence


@pytest.mark.parametrize(
    ("name", "hint"), [("wn18r", "; did you mean 'wn18rr'?"), ("FB15K-237", "; did you mean 'fb15k-237'?"), ("", "")]
)
def test_unknown_name(monkeypatch, tmp_path, name, hint):
    monkeypatch.chdir(tmp_path)
    for call in (load, get, info):
        with pytest.raises(UsageError) as caught:
            call(name)
        message = str(caught.value)
        assert message.startswith(f"unknown dataset '{name}'{hint} (known: ")
        assert ("; or give the path of a file or folder)" in message) == (call is load)


def test_sizes_and_whether_a_graph_is_here(monkeypatch, tmp_path):
    monkeypatch.delenv("EANS_DATA", raising=False)
    monkeypatch.setenv("EANS_CACHE", str(tmp_path / "cache"))
    assert (is_registered("wn18rr"), is_here("wn18rr")) == (True, False)
    assert sizes("wn18rr").entities == 40_943
    bundled = bundled_name()
    assert (is_registered(bundled), is_here(bundled)) == (True, True)
    own = tmp_path / "own"
    own.mkdir()
    (own / "train.txt").write_text("a\tr\tb\nb\tr\tc\n")
    assert (is_registered(str(own)), is_here(str(own))) == (False, True)
    assert sizes(str(own)) == Sizes(entities=3, relations=1, train=2, valid=0, test=0)
    with pytest.raises(UsageError, match="unknown dataset 'wn18'"):
        sizes("wn18")


def test_paths(monkeypatch, tmp_path):
    put(tmp_path / "mine", {"train": b"a\tr\tb\n"})
    monkeypatch.chdir(tmp_path)
    assert load("mine").name == "mine"  # no registered name, but a folder here
    assert load(tmp_path / "mine").name == "mine"
    with pytest.raises(DataError, match=r"^\./absent: no such folder|^absent: no such folder"):
        load("./absent")
    for absent in ("absent.csv", "absent.nt.gz", "mine/absent.PARQUET"):
        with pytest.raises(DataError, match=f"^{absent}: no such file; check the path$"):
            load(absent)
    assert load("mine/train.txt").name == "train"  # one file


# --- the real benchmarks ------------------------------------------------------------------------------------------

BENCHMARKS = os.environ.get("EANS_DATA")


@pytest.mark.skipif(not BENCHMARKS, reason="EANS_DATA does not name a folder with the benchmarks")
@pytest.mark.parametrize(("name", "unseen"), [("fb15k-237", 36), ("wn18rr", 384)])
def test_real_benchmark(monkeypatch, name, unseen):
    monkeypatch.setenv("EANS_DATA", str(BENCHMARKS))
    graph = load(name, download=False)
    report = info(name)
    assert report.found_in == "EANS_DATA"
    sizes = Sizes(graph.num_entities, graph.num_relations, *(len(graph.split(split)) for split in SPLITS))
    assert sizes == report.sizes
    assert graph.unseen_entities() == unseen
    assert dict(graph.sha256) == report.dataset.sha256


@pytest.mark.skipif(not BENCHMARKS, reason="EANS_DATA does not name a folder with the benchmarks")
def test_public_copy_of_fb15k_237_has_crlf(monkeypatch):
    monkeypatch.setenv("EANS_DATA", str(BENCHMARKS))
    graph = load("fb15k-237", download=False)
    for split, source in FB15K_237.sources.items():
        lines = "".join(graph.text(split)).replace("\n", "\r\n")
        assert digest(lines.encode()) == source.download_sha256
