"""RDF: N-Triples, N-Quads, Turtle, TriG and RDF/XML, parsed by pyoxigraph triple by triple.

Labels say the same in every document, so that splits may be in different files:

* an IRI is its full text. What ``ex:Alice`` stands for depends on the document (programs that write Turtle number
  prefixes: ``ns1``, ``ns2``), so that it is a name for display alone, see `short_names`;
* a blank node with a label is ``_:label``, as it is written;
* a blank node without one (``[...]``, a list, ``rdf:Description`` without ``rdf:about``) is ``[file 1]``, ``[file 2]``,
  by order of appearance: no other document can mean it, and the label is the same each time the file is read;
* a literal, where literals are kept, is as in N-Triples: ``"Alice"@en``.

All graphs of a dataset are read into one. Memory holds a batch, and the blank nodes without a label.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO
from xml.parsers import expat

import pyarrow as pa
import pyarrow.compute as pc

from eans.data.formats.base import PARTS, Source
from eans.errors import DataError, UsageError, printable
from eans.vocabulary import LABELS

FORMATS = {
    ".nt": "N_TRIPLES",
    ".nq": "N_QUADS",
    ".ttl": "TURTLE",
    ".trig": "TRIG",
    ".rdf": "RDF_XML",
    ".owl": "RDF_XML",
    ".xml": "RDF_XML",
}
SUFFIXES = tuple(FORMATS)
ROWS = 65536
LITERALS = "triples with a literal as object"
ABOUT_TRIPLES = "triples about triples"
GRAPHS = "names of graphs, whose triples are kept"

_BOM = b"\xef\xbb\xbf"
_LINES = ("N_TRIPLES", "N_QUADS")  # every blank node has a label there
_RANDOM = re.compile(r"[a-f][0-9a-f]{20,31}")  # what pyoxigraph calls a blank node without a label
_PLACE = re.compile(r"^Parser error at line \d+ (between columns \d+ and \d+|column \d+): ")


def read(source: Source) -> Iterator[pa.RecordBatch]:
    """The triples of a document.

    Triples whose object is a literal are left out, unless ``source.options.literals``; so are triples about triples,
    and the names of graphs.
    """
    form = _form(source.path)
    try:
        import pyoxigraph
    except ImportError:
        raise UsageError("RDF needs pyoxigraph, which the extra 'rdf' brings: pip install 'eans[rdf]'") from None
    with source.open() as stream:
        document: Any = _Document(stream, xml=form == "RDF_XML")
        quads = pyoxigraph.parse(document, format=getattr(pyoxigraph.RdfFormat, form))
        with _located(source.path, document):
            yield from _batches(quads, source, _labels(source, form))
    for prefix, start in quads.prefixes.items():
        source.prefixes.setdefault(prefix, start)


def short_names(labels: pa.Array, prefixes: Mapping[str, str]) -> dict[str, str]:
    """Names for display of the IRIs among `labels` that a prefix shortens: IRI to ``ex:Alice``.

    Of several prefixes, that with the longest IRI is taken. A name that is itself a label stays away.
    """
    names = {}
    for prefix, start in sorted(prefixes.items(), key=lambda item: (len(item[1]), item[0])):
        for label in labels.filter(pc.starts_with(labels, start)).to_pylist() if start else ():
            names[label] = f"{prefix}:{label.removeprefix(start)}"
    taken = set(pc.unique(labels.filter(pc.is_in(labels, pa.array(names.values(), labels.type)))).to_pylist())
    return {label: name for label, name in names.items() if name not in taken}


def _form(path: Path) -> str:
    """A file's format, by its suffix, which another one for its compression may follow."""
    for suffix in reversed(path.suffixes):
        if suffix.lower() in FORMATS:
            return FORMATS[suffix.lower()]
    raise DataError(f"{path}: is not known as RDF; name it *{', *'.join(FORMATS)}")


class _Document:
    """The bytes of a document for pyoxigraph, without a byte-order mark.

    RDF/XML is passed on line by line, so that errors have a line. It is parsed as XML beside that, because pyoxigraph
    takes a document that ends between two elements for a complete one.
    """

    def __init__(self, stream: BinaryIO, xml: bool) -> None:
        self.stream = stream
        self.line = 0  # on which the last block begins, from 1
        self.newlines = 1
        self.xml = expat.ParserCreate() if xml else None

    def read(self, size: int = -1) -> bytes:
        block = self.stream.read(size) if self.xml is None else self.stream.readline(size)
        if not self.line:
            block = block.removeprefix(_BOM)
        self.line, self.newlines = self.line + self.newlines, block.count(b"\n")
        if self.xml is not None:
            self.xml.Parse(block, not block)
        return block


@contextmanager
def _located(path: Path, document: _Document) -> Iterator[None]:
    """What is wrong with a document as a `DataError` that names the line."""
    try:
        yield
    except expat.ExpatError as error:
        reason = expat.ErrorString(error.code)
        raise DataError(f"{path}:{error.lineno}: not well-formed XML ({reason}); is the file complete?") from None
    except SyntaxError as error:
        where = f"{path}:{error.lineno or document.line}"
        reason = _PLACE.sub("", error.msg)
        if "utf-8" in reason:
            raise DataError(f"{where}: not valid UTF-8; convert the file to UTF-8") from None
        fix = "declare a base for relative IRIs" if "No scheme found" in reason else "correct the line"
        raise DataError(f"{where}: {reason}; {fix}") from None


Labels = Mapping[type, Callable[[Any], str]]


def _labels(source: Source, form: str) -> Labels:
    """By the type of a node, what makes its label; there is none for nodes that are left out."""
    from pyoxigraph import BlankNode, Literal, NamedNode

    numbers: dict[str, str] = {}

    def blank(node: BlankNode) -> str:
        name = node.value
        if form in _LINES or not _RANDOM.fullmatch(name):
            return f"_:{name}"
        return numbers.setdefault(name, f"[{source.path.name} {len(numbers) + 1}]")

    labels: dict[type, Callable[[Any], str]] = {NamedNode: lambda node: str(node.value), BlankNode: blank}
    if source.options.literals:
        labels[Literal] = lambda node: str(node).replace("\t", "\\t")  # a label has no tab; a backslash is written \\
    return labels


def _batches(quads: Iterable[Any], source: Source, labels: Labels) -> Iterator[pa.RecordBatch]:
    from pyoxigraph import DefaultGraph, Literal

    rows: list[tuple[str, str, str]] = []
    counts = dict.fromkeys((LITERALS, ABOUT_TRIPLES, GRAPHS), 0)
    examples: dict[str, str] = {}
    kept = 0

    def count(reason: str, what: object) -> None:
        counts[reason] += 1
        if counts[reason] == 1:
            examples[reason] = f"{source.path}: {printable(str(what))}"

    for quad in quads:
        subject, relation, tail, graph = quad
        if type(graph) is not DefaultGraph:
            count(GRAPHS, graph)
        if type(tail) not in labels or type(subject) not in labels:
            count(LITERALS if type(tail) is Literal else ABOUT_TRIPLES, quad)
            continue
        rows.append((labels[type(subject)](subject), relation.value, labels[type(tail)](tail)))
        kept += 1
        if len(rows) == ROWS:
            yield _batch(rows)
            rows = []
    if rows:
        yield _batch(rows)
    for reason, example in examples.items():
        source.drop(reason, counts[reason], example)
    if not kept:
        others = "".join(f", but {counts[reason]} {reason}" for reason in (LITERALS, ABOUT_TRIPLES) if counts[reason])
        raise DataError(f"{source.path}: holds no triples of entities{others}; is it the right file?")


def _batch(rows: list[tuple[str, str, str]]) -> pa.RecordBatch:
    columns = [pa.array([row[at] for row in rows], LABELS) for at in range(3)]  # zip(*rows) takes several times as long
    return pa.RecordBatch.from_arrays(columns, list(PARTS))
