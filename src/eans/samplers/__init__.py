"""The samplers by name. A new sampler is one file and one line here; the contract tests then cover it."""

from eans.samplers.all_entities import AllEntities
from eans.samplers.base import Sampler
from eans.samplers.bernoulli import Bernoulli
from eans.samplers.eans import EANS
from eans.samplers.frequency import Frequency
from eans.samplers.igan import IGAN
from eans.samplers.kbgan import KBGAN
from eans.samplers.none import NoNegatives
from eans.samplers.nscaching import NSCaching
from eans.samplers.sans import SANS
from eans.samplers.uniform import Uniform
from eans.types import Negatives, StepOutcome

SAMPLERS: dict[str, type[Sampler]] = {
    "uniform": Uniform,
    "eans": EANS,
    "bernoulli": Bernoulli,
    "frequency": Frequency,
    "nscaching": NSCaching,
    "kbgan": KBGAN,
    "igan": IGAN,
    "sans": SANS,
    "none": NoNegatives,
    "all": AllEntities,
}

__all__ = [
    "EANS",
    "IGAN",
    "KBGAN",
    "SAMPLERS",
    "SANS",
    "AllEntities",
    "Bernoulli",
    "Frequency",
    "NSCaching",
    "Negatives",
    "NoNegatives",
    "Sampler",
    "StepOutcome",
    "Uniform",
]
