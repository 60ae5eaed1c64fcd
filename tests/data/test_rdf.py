"""RDF read back as it was written, by pyoxigraph and by hand; what cannot be read is one line with file and line."""

from __future__ import annotations

import io
import sys
from contextlib import nullcontext
from pathlib import Path

import pyarrow as pa
import pyoxigraph as ox
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import eans
from eans.data.formats import rdf
from eans.data.formats.base import ReadOptions
from eans.errors import DataError, UsageError
from helpers_formats import PlainFile, Triple, batches_of, damaged, graphs, message_of, triples_of

TURTLE = """@prefix ex: <http://example.org/> .
ex:Alice ex:knows ex:Bob, _:friend ;
    ex:name "Alice"@en ;
    ex:age 30 .
ex:Bob ex:home [ ex:in ex:Paris ] .
"""
XML = """<?xml version="1.0"?>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:ex="http://example.org/">
<rdf:Description rdf:about="http://example.org/Alice">
<ex:knows rdf:resource="http://example.org/Bob"/>
<ex:home><rdf:Description><ex:in rdf:resource="http://example.org/Paris"/></rdf:Description></ex:home>
</rdf:Description>
</rdf:RDF>
"""
E = "http://example.org/"

# What an IRI may have: anything but white space, brackets and some more; pyoxigraph normalizes nothing.
iris = st.text(
    st.characters(categories=["L", "N"], include_characters="/#?=&.-_~%20".replace("%", "")), min_size=1, max_size=8
).map(lambda name: f"http://example.org/{name}")
FORMATS = {".nt": "N_TRIPLES", ".nq": "N_QUADS", ".ttl": "TURTLE", ".trig": "TRIG", ".rdf": "RDF_XML"}


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("suffix", FORMATS)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60, deadline=None)
@given(triples=graphs(iris))
def test_round_trip(tmp_path: Path, suffix: str, triples: list[Triple]) -> None:
    if suffix == ".rdf":  # the name of a relation is the name of an element there
        triples = [(h, "http://example.org/r", t) for h, _, t in triples]
    path = tmp_path / f"g{suffix}"
    quads = [ox.Triple(*map(ox.NamedNode, triple)) for triple in triples]
    path.write_bytes(ox.serialize(quads, format=getattr(ox.RdfFormat, FORMATS[suffix]), prefixes={"ex": E}) or b"")
    assert triples_of(rdf.read, path) == triples


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100, deadline=None)
@given(
    texts=st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=6), min_size=1, max_size=6, unique=True),
    language=st.sampled_from([None, "en", "de"]),
)
def test_different_literals_are_different_labels(tmp_path: Path, texts: list[str], language: str | None) -> None:
    path = tmp_path / "g.nt"
    alice, name = ox.NamedNode(f"{E}Alice"), ox.NamedNode(f"{E}name")
    triples = [ox.Triple(alice, name, ox.Literal(text, language=language)) for text in texts]
    path.write_bytes(ox.serialize(triples, format=ox.RdfFormat.N_TRIPLES) or b"")
    tails = [tail for _, _, tail in triples_of(rdf.read, path, literals=True)]
    assert len(set(tails)) == len(texts)
    assert not any(letter in tail for tail in tails for letter in "\t\n\r")


def test_turtle(tmp_path: Path) -> None:
    source = PlainFile(write(tmp_path / "g.ttl", TURTLE))
    (batch,) = list(rdf.read(source))
    assert set(zip(*(column.to_pylist() for column in batch.columns), strict=True)) == {
        (f"{E}Alice", f"{E}knows", f"{E}Bob"),
        (f"{E}Alice", f"{E}knows", "_:friend"),
        (f"{E}Bob", f"{E}home", "[g.ttl 1]"),
        ("[g.ttl 1]", f"{E}in", f"{E}Paris"),
    }
    assert source.prefixes == {"ex": E}
    assert source.counts == {rdf.LITERALS: 2}
    assert source.dropped[rdf.LITERALS].example.startswith(f"{source.path}: <{E}Alice> <{E}name> ")


def test_literals_are_kept_if_asked(tmp_path: Path) -> None:
    tails = {tail for _, _, tail in triples_of(rdf.read, write(tmp_path / "g.ttl", TURTLE), literals=True)}
    assert {'"Alice"@en', '"30"^^<http://www.w3.org/2001/XMLSchema#integer>'} <= tails


@pytest.mark.parametrize(("suffix", "text"), [("ttl", TURTLE), ("rdf", XML)])
def test_labels_are_the_same_each_time(tmp_path: Path, suffix: str, text: str) -> None:
    """Blank nodes without a label are numbered, where pyoxigraph gives them random names."""
    path = write(tmp_path / f"g.{suffix}", text)
    assert triples_of(rdf.read, path) == triples_of(rdf.read, path)
    assert f"[g.{suffix} 1]" in {tail for _, _, tail in triples_of(rdf.read, path)}


def test_a_node_without_a_label_is_in_no_other_document(tmp_path: Path) -> None:
    first, second = (triples_of(rdf.read, write(tmp_path / f"{name}.ttl", TURTLE)) for name in ("train", "test"))
    assert {part for triple in {*first} ^ {*second} for part in triple if part.startswith("[")} == {
        "[train.ttl 1]",
        "[test.ttl 1]",
    }


def test_a_label_that_looks_random_stays_in_lines(tmp_path: Path) -> None:
    """What one program wrote as N-Triples and another cut into splits: the label is the same in both."""
    label = "_:" + ox.BlankNode().value
    path = write(tmp_path / "g.nt", f"{label} <{E}r> {label} .\n")
    assert triples_of(rdf.read, path) == [(label, f"{E}r", label)]


def test_prefixes_of_two_documents_do_not_mix(tmp_path: Path) -> None:
    """Programs number prefixes: ns1 is one thing in train and another in test."""
    one = triples_of(rdf.read, write(tmp_path / "a.ttl", "@prefix ns1: <http://a/> . ns1:x ns1:r ns1:y ."))
    two = triples_of(rdf.read, write(tmp_path / "b.ttl", "@prefix ns1: <http://b/> . ns1:x ns1:r ns1:y ."))
    assert not {part for triple in one for part in triple} & {part for triple in two for part in triple}


def test_a_prefix_that_is_declared_again(tmp_path: Path) -> None:
    text = "@prefix p: <http://a/> . p:x p:r p:y .\n@prefix p: <http://b/> . p:x p:r p:y ."
    found = triples_of(rdf.read, write(tmp_path / "g.ttl", text))
    assert found == [tuple(f"http://{name}/{part}" for part in "xry") for name in "ab"]


def test_graphs_are_read_into_one_and_counted(tmp_path: Path) -> None:
    text = f"<{E}g> {{ <{E}a> <{E}r> <{E}b> . <{E}b> <{E}r> <{E}c> }}\n<{E}c> <{E}r> <{E}a> ."
    source = PlainFile(write(tmp_path / "g.trig", text))
    assert sum(map(len, batches_of(rdf.read, source))) == 3
    assert source.counts == {rdf.GRAPHS: 2}


def test_triples_about_triples_are_counted(tmp_path: Path) -> None:
    text = f"<{E}a> <{E}r> <{E}b> .\n<{E}a> <{E}says> <<( <{E}a> <{E}r> <{E}b> )>> .\n"
    source = PlainFile(write(tmp_path / "g.nt", text), ReadOptions(literals=True))
    assert sum(map(len, batches_of(rdf.read, source))) == 1
    assert source.counts == {rdf.ABOUT_TRIPLES: 1}


def test_many_batches_are_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rdf, "ROWS", 4)
    path = write(tmp_path / "g.nt", "".join(f"<{E}{n}> <{E}r> <{E}{n + 1}> .\n" for n in range(11)))
    assert [len(batch) for batch in batches_of(rdf.read, PlainFile(path))] == [4, 4, 3]
    assert triples_of(rdf.read, path) == [(f"{E}{n}", f"{E}r", f"{E}{n + 1}") for n in range(11)]


def test_a_byte_order_mark_is_no_part_of_a_document(tmp_path: Path) -> None:
    for suffix, text in ((".ttl", TURTLE), (".rdf", XML)):
        (tmp_path / f"g{suffix}").write_bytes(b"\xef\xbb\xbf" + text.encode())
        assert len(triples_of(rdf.read, tmp_path / f"g{suffix}")) >= 3


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("g.nt", f"<{E}a> <{E}r> <{E}b> .\n<{E}a> <{E}r> b .\n", ":2: "),
        ("g.nt", f"<{E}a> <{E}r> <b> .\n", ":1: No scheme found in an absolute IRI; declare a base for relative IRIs"),
        ("g.ttl", f"{TURTLE}ex:a foo:b ex:c .", ":6: The prefix foo: has not been declared; correct the line"),
        ("g.rdf", XML.replace(f'"{E}Bob"', '"Bob"'), ":4: error while parsing IRI 'Bob': No scheme found"),
        ("g.rdf", XML[:-12], ":6: not well-formed XML (no element found); is the file complete?"),
        ("g.rdf", XML.replace("</ex:home>", "</ex:house>"), ":5: "),
        ("g.rdf", "<a/>", ":1: XML namespaces are required in RDF/XML; correct the line"),
        ("g.nt", f'<{E}a> <{E}r> "x" .\n', "holds no triples of entities, but 1 triples with a literal as object"),
        ("g.nt", "# nothing\n", "holds no triples of entities; is it the right file?"),
        ("g.txt", TURTLE, "is not known as RDF; name it *.nt, *.nq, *.ttl"),
    ],
)
def test_what_is_wrong_is_said_with_the_line(tmp_path: Path, name: str, text: str, expected: str) -> None:
    path = write(tmp_path / name, text)
    message = message_of(lambda: triples_of(rdf.read, path))
    assert message.startswith(str(path))
    assert expected in message


@pytest.mark.parametrize(("suffix", "text"), [("ttl", TURTLE), ("trig", TURTLE), ("rdf", XML), ("nt", "")])
def test_broken_files(tmp_path: Path, suffix: str, text: str) -> None:
    """Each gives triples or one line."""
    whole = text or "".join(f"<{E}{n}> <{E}r> <{E}é{n}a> .\n" for n in range(9))
    path = write(tmp_path / f"g.{suffix}", whole)
    count = len(triples_of(rdf.read, path))
    failed = 0
    for content in damaged(whole.encode()):
        path.write_bytes(content)
        try:
            assert len(triples_of(rdf.read, path)) <= count
        except DataError:
            failed += 1
            assert message_of(lambda: triples_of(rdf.read, path)).startswith(str(path))
    assert failed > 30
    path.unlink()
    assert "cannot be read (No such file or directory)" in message_of(lambda: triples_of(rdf.read, path))


def test_a_cut_xml_document_never_passes_for_complete(tmp_path: Path) -> None:
    for length in range(len(XML.rstrip())):
        path = write(tmp_path / "g.rdf", XML[:length])
        assert message_of(lambda path=path: triples_of(rdf.read, path)).startswith(str(path))


def test_errors_of_the_source_are_passed_on(tmp_path: Path) -> None:
    class Cut(io.BytesIO):
        def read(self, _: int | None = -1) -> bytes:
            raise DataError("g.nt.gz: the gzip data is truncated")

    class CutFile(PlainFile):
        def open(self):
            return nullcontext(Cut())

    assert message_of(lambda: list(rdf.read(CutFile(tmp_path / "g.nt")))) == "g.nt.gz: the gzip data is truncated"


def test_without_pyoxigraph(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyoxigraph", None)
    with pytest.raises(UsageError, match=r"pip install 'eans\[rdf\]'"):
        list(rdf.read(PlainFile(write(tmp_path / "g.ttl", TURTLE))))


def test_short_names() -> None:
    labels = pa.array([f"{E}Alice", f"{E}old/Bob", "http://other/x", "_:b", E, "ex:Alice"], pa.large_string())
    assert rdf.short_names(labels, {"ex": E, "old": f"{E}old/"}) == {f"{E}old/Bob": "old:Bob", E: "ex:"}
    names = rdf.short_names(labels[:5], {"ex": E, "e": E, "none": ""})
    assert names == {f"{E}Alice": "ex:Alice", f"{E}old/Bob": "ex:old/Bob", E: "ex:"}


def test_a_graph_shows_short_names(tmp_path: Path) -> None:
    graph = eans.load(write(tmp_path / "g.ttl", TURTLE), report=lambda _: None)
    assert graph.entities.shown(graph.entities.id(f"{E}Alice")) == f"ex:Alice ({E}Alice)"
    assert graph.relations.name(graph.relations.id(f"{E}knows")) == "ex:knows"
    assert graph.entities.name(graph.entities.id("_:friend")) is None
