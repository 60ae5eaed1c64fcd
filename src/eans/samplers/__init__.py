"""The samplers by name. A new sampler is one file and one line here; the contract tests then cover it."""

from eans.samplers.base import Negatives, Sampler, StepOutcome
from eans.samplers.eans import EANS
from eans.samplers.sans import SANS
from eans.samplers.uniform import Uniform

SAMPLERS: dict[str, type[Sampler]] = {
    "uniform": Uniform,
    "eans": EANS,
    "sans": SANS,
}

__all__ = ["EANS", "SAMPLERS", "SANS", "Negatives", "Sampler", "StepOutcome", "Uniform"]
