"""The models by name. A new model is one file and one line here; the contract tests then cover it."""

from eans.models.base import Model
from eans.models.complex import ComplEx
from eans.models.conve import ConvE
from eans.models.distmult import DistMult
from eans.models.layers import Dropout, learning
from eans.models.parameters import Reciprocal
from eans.models.query import Positives, Query, with_bias
from eans.models.rescal import RESCAL
from eans.models.rotate import RotatE
from eans.models.simple import SimplE
from eans.models.transd import TransD
from eans.models.transe import TransE
from eans.models.transh import TransH
from eans.models.transr import TransR
from eans.types import Scores, Substitution, TripleRows

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
    "conve": ConvE,
}

__all__ = [
    "MODELS",
    "RESCAL",
    "ComplEx",
    "ConvE",
    "DistMult",
    "Dropout",
    "Model",
    "Positives",
    "Query",
    "Reciprocal",
    "RotatE",
    "Scores",
    "SimplE",
    "Substitution",
    "TransD",
    "TransE",
    "TransH",
    "TransR",
    "TripleRows",
    "learning",
    "with_bias",
]
