"""The losses by name. A new loss is one file and one line here; the contract tests then cover it."""

from eans.losses.base import Loss
from eans.losses.bce import BinaryCrossEntropy
from eans.losses.hinge import HingeLoss
from eans.losses.logsigmoid import LogSigmoid
from eans.losses.softmax import SoftmaxLoss
from eans.losses.substitution import SubstitutionLoss

LOSSES: dict[str, type[Loss]] = {
    "logsigmoid": LogSigmoid,
    "substitution": SubstitutionLoss,
    "softmax": SoftmaxLoss,
    "hinge": HingeLoss,
    "bce": BinaryCrossEntropy,
}

__all__ = ["LOSSES", "BinaryCrossEntropy", "HingeLoss", "LogSigmoid", "Loss", "SoftmaxLoss", "SubstitutionLoss"]
