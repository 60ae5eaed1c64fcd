"""The samplers by name. A new sampler is one file and one line here; the contract tests then cover it."""

from eans.samplers.base import Negatives, Sampler, StepOutcome
from eans.samplers.bernoulli import Bernoulli
from eans.samplers.eans import EANS
from eans.samplers.nscaching import NSCaching
from eans.samplers.uniform import Uniform

SAMPLERS: dict[str, type[Sampler]] = {
    "uniform": Uniform,
    "eans": EANS,
    "bernoulli": Bernoulli,
    "nscaching": NSCaching,
}

__all__ = ["EANS", "SAMPLERS", "Bernoulli", "NSCaching", "Negatives", "Sampler", "StepOutcome", "Uniform"]
