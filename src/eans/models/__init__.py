"""The models by name. A new model is one file and one line here; the contract tests then cover it."""

from eans.models.base import Model, Query, Scores, Substitution, TripleRows
from eans.models.complex import ComplEx
from eans.models.distmult import DistMult
from eans.models.rescal import RESCAL
from eans.models.rotate import RotatE
from eans.models.simple import SimplE
from eans.models.transd import TransD
from eans.models.transe import TransE
from eans.models.transh import TransH
from eans.models.transr import TransR

MODELS: dict[str, type[Model]] = {
    "transe": TransE,
    "transd": TransD,
    "distmult": DistMult,
    "complex": ComplEx,
    "rotate": RotatE,
    "simple": SimplE,
    "rescal": RESCAL,
    "transh": TransH,
    "transr": TransR,
}

__all__ = [
    "MODELS",
    "RESCAL",
    "ComplEx",
    "DistMult",
    "Model",
    "Query",
    "RotatE",
    "Scores",
    "SimplE",
    "Substitution",
    "TransD",
    "TransE",
    "TransH",
    "TransR",
    "TripleRows",
]
