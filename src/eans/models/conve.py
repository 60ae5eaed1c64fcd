"""ConvE (Dettmers et al., 2018): a convolution over the head and the relation, laid out as one image."""

from __future__ import annotations

import math
from typing import Annotated, Any

import torch
from torch import Tensor, nn

from eans.models.base import Model
from eans.models.layers import Dropout
from eans.models.parameters import Reciprocal
from eans.models.query import Query, with_bias
from eans.options import Option
from eans.types import Side


def image_shape(dim: int) -> tuple[int, int]:
    """Height and width of a row of d numbers: those that make two of them, stacked, most like a square.

    The paper's 10 x 20 for 200.
    """
    height = min((part for part in range(1, dim + 1) if dim % part == 0), key=lambda part: abs(2 * part - dim // part))
    return height, dim // height


class ConvE(Model):
    """``score = <relu(norm(W vec(relu(norm(norm([h; r]) * filters))) + c)), t> + b_t``, for tails alone.

    ``[h; r]`` is the image of h above that of r, ``*`` a convolution without padding, and each ``norm`` a batch norm;
    a dropout follows each of the three stages. As in the authors' code, which has the last dropout before its norm.

    Args:
        args, kwargs: see `Model`.
        reciprocal: must be true: head queries are tail queries of inverse relations.
        filters: of the convolution, 3 x 3 each, or as large as the image where that is smaller.
        input_dropout, feature_dropout, hidden_dropout: shares of the numbers of the image, of the filters' outputs
            (as a whole) and of the query that a training step leaves out.
    """

    comparison = "dot"
    entity_bias = True
    tails_only = True
    least_batch = 2

    def __init__(
        self,
        *args: Any,
        reciprocal: Reciprocal = True,
        filters: Annotated[int, Option("filters of the convolution", ge=1)] = 32,
        input_dropout: Annotated[float, Option("share of the image that a step leaves out", ge=0, lt=1)] = 0.2,
        feature_dropout: Annotated[float, Option("share of the filters that a step leaves out", ge=0, lt=1)] = 0.2,
        hidden_dropout: Annotated[float, Option("share of the query that a step leaves out", ge=0, lt=1)] = 0.3,
        **kwargs: Any,
    ) -> None:
        self.filters, self.dropouts = filters, (input_dropout, feature_dropout, hidden_dropout)
        super().__init__(*args, reciprocal=reciprocal, **kwargs)  # type: ignore[misc]

    def make_layers(self) -> None:
        height, width = self.image = image_shape(self.dim)
        kernel = min(3, 2 * height), min(3, width)
        features = self.filters * (2 * height - kernel[0] + 1) * (width - kernel[1] + 1)
        image, feature, hidden = self.dropouts
        self.convolve = nn.Sequential(
            nn.BatchNorm2d(1),
            Dropout(image),
            nn.Conv2d(1, self.filters, kernel),
            nn.BatchNorm2d(self.filters),
            nn.ReLU(),
            Dropout(feature, whole_from=2),
            nn.Flatten(),
        )
        self.project = nn.Sequential(
            nn.Linear(features, self.dim), Dropout(hidden), nn.BatchNorm1d(self.dim), nn.ReLU()
        )
        self.layer_numbers = 3 * features

    @classmethod
    def default_range(cls, dim: int, margin: float = 9.0) -> float:
        """That at which initial scores have a standard deviation of 0.1 in training, where queries are normalised."""
        del margin
        return 0.1 * math.sqrt(6 / dim)

    def query(self, anchor: Tensor, relation: Tensor, side: Side) -> Query:
        assert side == "tail"
        rows = torch.stack((anchor[:, : self.dim], relation.expand(len(anchor), -1)), 1)  # [B, 2, d]
        height, width = self.image
        return Query(with_bias(self.project(self.convolve(rows.reshape(-1, 1, 2 * height, width)))))
