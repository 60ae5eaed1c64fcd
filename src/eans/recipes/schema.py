"""What a recipe may say: sections, keys, types, ranges and defaults. The field descriptions are the manual.

The sections of models, samplers and losses are made from the options that the classes declare: `eans.recipes.parts`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import Field, SerializeAsAny, ValidationInfo, field_validator

from eans.recipes.parts import PARTS, PartSection, Section, section_of

Auto = Literal["auto"]
Positive = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class DataSection(Section):
    name: str = Field("", description="registered dataset or folder; empty for the bundled graph")


class TrainSection(Section):
    steps: Positive | Auto = Field("auto", description="auto: about 100 passes per side, 2,000 to 100,000")
    batch_size: Positive | Auto = Field(
        "auto",
        description="positives per step, b; auto: train / 4, 16 to 512; of very many triples so many that 100,000 "
        "steps are 20 passes per side, up to 16,384",
    )
    optimizer: Literal["adam", "adagrad", "lazy-adam", "row-adagrad", "auto"] = Field(
        "adam",
        description="adagrad wants a larger lr; rows without a gradient stay, and there is half the state. lazy-adam, "
        "which equals adam up to rounding, and row-adagrad, with one number of state per entity and a larger lr, work "
        "on the rows that a step uses alone; auto: adam, from 1,000,000 entities lazy-adam where it is possible",
    )
    lr: Annotated[float, Field(gt=0)] = Field(1e-3, description="initial learning rate")
    lr_decay: Literal["drop", "linear"] = Field("drop", description="one drop of lr, or a straight line down to zero")
    lr_drop: Annotated[float, Field(gt=0, le=1)] = Field(0.1, description="factor on lr after the drop; 1 for none")
    lr_drop_at: Share = Field(0.5, description="where the drop happens, as a share of the steps")
    reset_optimizer: bool = Field(True, description="forget the optimizer's moments at the drop")
    dropout: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0, description="share of a query's numbers that a step leaves out, chosen at random; dot-product models only"
    )
    rows: Literal["float32", "bfloat16"] = Field(
        "float32", description="on a GPU, compare or multiply rows rounded to bfloat16: faster, less exact"
    )
    subsampling: bool | Literal["query", "answer"] = Field(
        True,
        description="weight positives by (c(h,r) + c(r,t)) ** -power; query: by c ** -power of the pair that is given; "
        "answer: by .1 + .9 (c / max c) ** power, c the times that the entity asked for occurs",
    )
    subsampling_power: Annotated[float, Field(ge=0, le=2)] = Field(
        0.5, description="power of these weights; query with 1: queries count alike, however many answers they have"
    )
    seed: Count = Field(0, description="fixes every random number")
    log_every: Positive = Field(100, description="steps between log records")
    valid_every: Count | Auto = Field(
        0, description="steps between validations; 0 for none; auto: twenty of them where there are valid triples"
    )
    valid_triples: Count | Auto = Field(
        0,
        description="validate on this many triples; 0 for all; auto: at most 1,000, and so few that validations take "
        "about a tenth of the time",
    )
    patience: Count | Auto = Field(
        0, description="validations without a better MRR before stopping; 0 to never stop early; auto: 5"
    )
    patience_from: Share | Auto = Field(
        0.0,
        description="share of the steps up to which no validation counts for patience; auto: until lr drops, after "
        "which MRR rises again",
    )
    keep: Literal["last", "best", "auto"] = Field(
        "last",
        description="end with the last weights, or the best validated ones unless all valid triples say that the "
        "last are better; auto: best where there are validations",
    )
    checkpoint_every: Count = Field(1000, description="steps between checkpoints; 0 for the end only")


class EvaluationSection(Section):
    ties: Literal["realistic", "optimistic", "pessimistic"] = Field("realistic", description="rank of equal scores")
    memory_mb: Positive = Field(512, description="bound on the working memory of a ranking")


class Recipe(Section):
    """One training run, fully described. Which keys `model`, `sampler` and `loss` have depends on their names."""

    name: str = Field("", description="where the recipe came from")
    data: DataSection = DataSection()
    model: SerializeAsAny[PartSection] = Field(default_factory=lambda: section_of("model", {}))
    sampler: SerializeAsAny[PartSection] = Field(default_factory=lambda: section_of("sampler", {}))
    loss: SerializeAsAny[PartSection] = Field(default_factory=lambda: section_of("loss", {}))
    train: TrainSection = TrainSection()
    evaluation: EvaluationSection = EvaluationSection()

    @field_validator(*PARTS, mode="before")
    @classmethod
    def _of_the_named_class(cls, written: Any, info: ValidationInfo) -> Any:
        return section_of(str(info.field_name), written) if isinstance(written, Mapping) else written
