"""What a recipe may say: sections, keys, types, ranges and defaults. The field descriptions are the manual."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

Auto = Literal["auto"]
Positive = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
Share = Annotated[float, Field(ge=0.0, le=1.0)]


class Section(BaseModel):
    """Base of all sections: unknown keys are errors, values never change silently."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True, protected_namespaces=(), allow_inf_nan=False)


class DataSection(Section):
    name: str = Field("", description="registered dataset or folder; empty for the bundled graph")


class ModelSection(Section):
    name: str = Field(
        "rotate", description="transe, transd, distmult, complex, rotate, simple, rescal, transh or transr"
    )
    dim: Positive = Field(200, description="nominal width d; complex models store 2d numbers per entity")
    init_range: Annotated[float, Field(gt=0, le=1e38)] | Auto = Field(
        "auto", description="tables start uniform in +-range; auto: (margin + 2) / dim, or by width for dot products"
    )
    projection: Literal["relation", "entity-table"] = Field(
        "relation", description="TransD only: where r_p comes from; 'entity-table' is the authors' index mix-up"
    )
    bounded: bool = Field(False, description="distmult, simple: score = scale / d * sum of products of tanh + shift")
    score_scale: Annotated[float, Field(gt=0)] = Field(1.0, description="bounded scores: the largest, less the shift")
    score_shift: float = Field(0.0, description="bounded scores: added to every one")
    reciprocal: bool = Field(False, description="a second row per relation: (?, r, t) is asked as (t, r_inverse, ?)")
    relation_dim: Positive | Auto = Field("auto", description="TransR only: width of the relations' spaces; auto: dim")


class SamplerSection(Section):
    name: str = Field(
        "eans", description="uniform, eans, bernoulli, frequency, nscaching, kbgan, igan, sans, all, none"
    )
    negatives: Count = Field(64, description="negatives per positive, n; 0 for the samplers none and all")
    known_true: Literal["exact", "repeats", "repeats-everywhere"] = Field(
        "exact", description="which negatives are labelled false negatives; 'repeats' is what the paper's results used"
    )
    false_negatives: Literal["mask", "resample", "keep"] = Field(
        "mask", description="mask them in the loss, draw again, or train on them as negatives"
    )
    uniform_share: Share = Field(0.0, description="share of uniform negatives mixed in")
    clusters: Positive | Auto = Field("auto", description="eans: k of K-means; auto: min(100, sqrt(|E|))")
    sigma: Annotated[float, Field(gt=0)] | Auto = Field(
        "auto", description="eans: standard deviation in entities; auto: 2 |E| / k"
    )
    reorder_every: Positive = Field(1000, description="eans: steps between two orderings")
    order_epoch: Count = Field(
        0, description="eans: a new order waits for a multiple of so many steps; 0: it takes effect at once"
    )
    warm_start: bool = Field(True, description="eans: start K-means from the previous centroids")
    inside: Literal["id", "inherited"] = Field(
        "id", description="eans: how entities stand inside a cluster: by id, or as in the line before"
    )
    boundary: Literal["wrap", "reflect"] = Field("wrap", description="eans: what happens at the ends of the line")
    counted_in: Literal["graph", "place"] = Field(
        "graph", description="frequency: count entities in all triples, or in the same place of the relation's"
    )
    frequency_power: Annotated[float, Field(ge=0, le=2)] = Field(
        1.0, description="frequency: draw by counts to this power; 0: all that occur alike"
    )
    pool: Positive = Field(20, description="kbgan: uniform candidates per positive that the generator chooses from")
    generator_model: Literal["distmult", "complex"] = Field("distmult", description="kbgan: the generator's model")
    generator_dim: Positive = Field(50, description="kbgan, igan: nominal width of the generator")
    generator_lr: Annotated[float, Field(gt=0)] = Field(1e-3, description="kbgan, igan: the generator's learning rate")
    generator_weight_decay: Annotated[float, Field(ge=0)] = Field(
        0.0, description="kbgan, igan: times each weight of the generator, added to its gradient"
    )
    generator_seed: Count = Field(0, description="kbgan, igan: fixes the generator's initial tables")
    generator_memory_mb: Positive = Field(1024, description="igan: refuse batches that would need more working memory")
    pretrain_steps: Count = Field(
        1000, description="kbgan, igan: first steps with uniform negatives, in which the generator learns the graph"
    )
    pool_kind: Literal["hops", "walks"] = Field("hops", description="sans: all within reach, or ends of random walks")
    hops: Positive = Field(2, description="sans: steps from the kept entity, k")
    walks: Positive = Field(1000, description="sans: random walks per entity")
    walk_restart: bool = Field(True, description="sans: each walk starts at its entity, not where the last one ended")
    walk_weights: bool = Field(False, description="sans: draw by how many walks ended there, instead of uniformly")
    pool_limit: Positive = Field(4096, description="sans: candidates per pool at most; larger ones are sampled down")
    pool_seed: Count = Field(0, description="sans: fixes the walks and what is sampled down")
    pool_memory_mb: Positive = Field(2048, description="sans: bound on the memory of all pools")
    proposal: Literal["gaussian", "block", "student"] = Field(
        "gaussian", description="eans: how a place is drawn: around the positive, inside its block, or with heavy tails"
    )
    blocks: Positive = Field(8, description="eans, block: equal blocks of the line, each of two entities or more")
    freedom: Annotated[int, Field(ge=1, le=100)] = Field(2, description="eans, student: degrees of freedom")
    orders: Annotated[int, Field(ge=1, le=64)] = Field(1, description="eans: lines at once; each row draws along one")
    cache_size: Positive = Field(50, description="nscaching: entities kept per query, N1")
    cache_candidates: Count = Field(50, description="nscaching: uniform entities that compete at a renewal, N2")
    cache_draw: Literal["uniform", "importance", "top"] = Field(
        "uniform", description="nscaching: negatives are slots at random, by exp(score), or the best"
    )
    cache_update: Literal["importance", "top"] = Field(
        "importance", description="nscaching: who stays in the cache: draws by exp(score), or the best"
    )
    cache_lazy: Count = Field(0, description="nscaching: steps of a side without a renewal after each one with")


class LossSection(Section):
    name: str = Field("substitution", description="logsigmoid, substitution (the loss of EANS), softmax or hinge")
    margin: Annotated[float, Field(ge=0, le=1e6)] | Auto = Field(
        "auto",
        description="gamma, added to every score; hinge: how much higher positives should score; softmax: sets nothing "
        "but init_range. auto: 9 for distance models, else 0 (hinge: 1)",
    )
    adversarial_temperature: Annotated[float, Field(ge=0)] = Field(
        0.0, description="alpha of self-adversarial weights; 0 for equal weights"
    )
    substitution_weight: Annotated[float, Field(ge=0)] = Field(1.0, description="lambda_2")
    substitution_regularization: Annotated[float, Field(ge=0)] = Field(0.1, description="lambda_1")
    form: Literal["reference", "paper"] = Field(
        "reference", description="the form that reaches the published numbers, or the equations as printed"
    )
    detach: bool = Field(False, description="stop the substitution score's gradient inside the negative logits")
    penalty: Literal["none", "l3", "n3", "dura", "stay-positive"] = Field(
        "none",
        description="l3: whole tables; n3: rows of the batch; dura: its entities and queries, dot products only; "
        "stay-positive: the sum of all scores of the graph",
    )
    penalty_weight: Annotated[float, Field(ge=0)] = Field(0.0, description="weight of the penalty")
    penalty_power: Literal[1, 2] = Field(1, description="stay-positive: p of |sum of scores|^p")
    relation_weight: Annotated[float, Field(ge=0)] = Field(
        0.0, description="weight of predicting each positive's relation from its head and tail; dot-product models only"
    )
    correct_proposal: bool = Field(
        True, description="softmax: weigh candidates by 1 / (n q), q the probability of their draw; false: all alike"
    )


class TrainSection(Section):
    steps: Positive | Auto = Field("auto", description="auto: about 100 passes per side, 2,000 to 100,000")
    batch_size: Positive | Auto = Field("auto", description="positives per step, b; auto: train / 4, 16 to 512")
    optimizer: Literal["adam", "adagrad"] = Field(
        "adam", description="adagrad wants a larger lr; rows without a gradient stay, and there is half the state"
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
        0.5, description="power of these weights; query with 1: questions count alike, however many answers they have"
    )
    seed: Count = Field(0, description="fixes every random number")
    log_every: Positive = Field(100, description="steps between log records")
    valid_every: Count = Field(0, description="steps between validations; 0 for none")
    valid_triples: Count = Field(0, description="validate on this many triples; 0 for all")
    patience: Count = Field(0, description="validations without a better MRR before stopping; 0 to never stop early")
    keep: Literal["last", "best"] = Field("last", description="end with the last weights or the best validated ones")
    checkpoint_every: Count = Field(1000, description="steps between checkpoints; 0 for the end only")


class EvaluationSection(Section):
    ties: Literal["realistic", "optimistic", "pessimistic"] = Field("realistic", description="rank of equal scores")
    memory_mb: Positive = Field(512, description="bound on the working memory of a ranking")


class Recipe(Section):
    """One training run, fully described."""

    name: str = Field("", description="where the recipe came from")
    data: DataSection = DataSection()
    model: ModelSection = ModelSection()
    sampler: SamplerSection = SamplerSection()
    loss: LossSection = LossSection()
    train: TrainSection = TrainSection()
    evaluation: EvaluationSection = EvaluationSection()
