"""The samplers by name. A new sampler is one file and one line here; the contract tests then cover it."""

from eans.samplers.base import Negatives, Sampler, StepOutcome
from eans.samplers.bernoulli import Bernoulli
from eans.samplers.eans import EANS
from eans.samplers.everything import Everything
from eans.samplers.frequency import Frequency
from eans.samplers.igan import IGAN
from eans.samplers.kbgan import KBGAN
from eans.samplers.none import NoNegatives
from eans.samplers.nscaching import NSCaching
from eans.samplers.sans import SANS
from eans.samplers.uniform import Uniform

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
    "all": Everything,
}

__all__ = [
    "EANS",
    "IGAN",
    "KBGAN",
    "SAMPLERS",
    "SANS",
    "Bernoulli",
    "Everything",
    "Frequency",
    "NSCaching",
    "Negatives",
    "NoNegatives",
    "Sampler",
    "StepOutcome",
    "Uniform",
]
