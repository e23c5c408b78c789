"""The shape of the network."""

from collections.abc import Iterator
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from bert_jax.config.settings import GIVEN, Requirement, Settings
from bert_jax.system.errors import Setting

Rate = Annotated[float, Field(ge=0.0, lt=1.0)]
# Bounds far above any BERT, so that no product of sizes overflows and a damaged config.json is refused by name.
Layers = Annotated[int, Field(gt=0, le=1_000)]
Width = Annotated[int, Field(gt=0, le=1 << 20)]
Rows = Annotated[int, Field(gt=0, le=1 << 24)]


WIDEST_FILTER = 7
"""Width in bytes of the widest filters of a convolution over bytes: the published models'."""
ComputeType = Literal["auto", "float32", "bfloat16"]
Activation = Literal["gelu_tanh", "gelu_erf", "silu"]
ClassToken = Literal["first", "last"]
Positions = Literal["learned", "sinusoidal", "rotary", "relative", "bucketed", "disentangled", "none"]
ModelType = Literal[
    "bert",
    "roberta",
    "xlm-roberta",
    "camembert",
    "albert",
    "ernie",
    "electra",
    "distilbert",
    "mpnet",
    "nomic_bert",
    "deberta-v2",
    "eurobert",
    "modernbert",
    "xlnet",
]
RotaryBase = Annotated[float, Field(gt=1.0, le=1e9)]

_OF_RELATIVE_POSITIONS = {
    "num_segments": 0,
    "causal": False,
    "local_window": None,
    "norm": "post",
    "discriminator": False,
    "embedding_size": None,
}
"""Settings that must have this value with positions=relative."""
_OF_PRETRAINING = (
    *("discriminator", "discriminator_head", "mask_decoder"),
    *("generator_divisor", "generator_layers", "shared_embeddings"),
)
"""Settings of heads and networks that only pretraining has."""
_OF_LSTM_LAYERS = {
    **_OF_RELATIVE_POSITIONS,
    "positions": "none",
    "feedforward": "dense",
    "shared_layers": False,
    "key_value_heads": None,
    "block_biases": True,
    "class_token": "first",
}
"""Settings that must have this value with layer=lstm."""


class ModelConfig(Settings):
    """The BERT encoder (Devlin et al. 2019, section 3): the defaults are BERT-base's."""

    PREFIX: ClassVar[str] = "--model."
    REQUIREMENTS: ClassVar[tuple[Requirement, ...]] = (
        *(Requirement("layer", "lstm", *other, "LSTM layers have no other") for other in _OF_LSTM_LAYERS.items()),
        *(
            Requirement("positions", "relative", *other, "no other is possible with relative positions")
            for other in _OF_RELATIVE_POSITIONS.items()
        ),
        Requirement("positions", "bucketed", "local_window", None, "its terms are only added in global attention"),
        Requirement("character_filters", GIVEN, "layer", "lstm", "only LSTM layers read bytes"),
        Requirement("distance_buckets", GIVEN, "positions", "disentangled", "only disentangled positions have them"),
        Requirement("positions", "disentangled", "distance_buckets", GIVEN, "its distances are in buckets"),
        Requirement("positions", "disentangled", "clamped_distance", GIVEN, "the last bucket begins at a distance"),
        Requirement("positions", "disentangled", "local_window", None, "its terms are only added in global attention"),
        Requirement("norm", "pre", "shared_layers", False, "the first block lacks a norm that shared blocks have"),
        Requirement("local_window", GIVEN, "global_every", GIVEN, "no block would have local attention"),
        Requirement("global_every", GIVEN, "local_window", GIVEN, "blocks with local attention need its width"),
        Requirement("embedding_norm", False, "norm", "pre", "with norm=post the first block needs them normalised"),
        Requirement("head", "product", "tied_words", False, "such a head would have no parameters"),
        Requirement("block_biases", False, "biases", True, "without biases blocks have none anyway"),
        Requirement("generator_divisor", GIVEN, "discriminator", True, "a generator is for a discriminator"),
        Requirement("generator_divisor", GIVEN, "causal", False, "a generator sees both sides of what it fills"),
        Requirement("generator_layers", GIVEN, "generator_divisor", GIVEN, "the model has no generator"),
        Requirement("shared_embeddings", GIVEN, "generator_divisor", GIVEN, "the model has no generator"),
        Requirement("discriminator_head", GIVEN, "discriminator", True, "the model has no such head"),
        Requirement("mask_decoder", True, "positions", "disentangled", "other models know positions in every layer"),
        Requirement("mask_decoder", True, "norm", "post", "it is defined for this form alone"),
        Requirement("mask_decoder", True, "causal", False, "a query would see tokens after its own"),
    )
    model_type: ModelType = "bert"
    """The model's type in the transformers library. It determines only the names in exported files, not what is
    computed. A causal modernbert is a modernbert-decoder there."""
    layer: Literal["attention", "lstm"] = "attention"
    """Kind of the encoder's layers: blocks of attention and feed-forward (BERT's), or two stacks of LSTM layers, one
    over the tokens before each token and one over those after it (lstm, ELMo's, Peters et al. 2018). A token's
    vector is then the outputs of both stacks side by side, hidden_size / 2 wide each, and feedforward_size is the width
    of a cell. Needed for objective.predict=both."""
    num_layers: Layers = 12
    """Layers of the encoder (L). With layer=lstm, each of the two stacks has this many."""
    hidden_size: Width = 768
    """Width of every token's vector (D)."""
    embedding_size: Width | None = None
    """Width of the embedding tables (E) if it isn't hidden_size. A matrix then projects the embeddings to hidden_size.
    ALBERT and ELECTRA have tables narrower than the model. None: hidden_size, without a projection."""
    num_heads: Width = 12
    """Attention heads of a block (H). The number must divide the width."""
    key_value_heads: Width | None = None
    """Heads of a block's keys and values, each shared by several heads of queries (Ainslie et al. 2023). The number
    must divide num_heads. None: num_heads."""
    shared_layers: bool = False
    """Whether all blocks have the same parameters, as in ALBERT (Lan et al. 2020, section 3.1)."""
    feedforward_size: Width | None = None
    """Width inside a block's feed-forward part (F). None: four times hidden_size."""
    max_positions: Rows = 512
    """Length of the longest sequence. A learned position table has first_position rows more."""
    positions: Positions = "learned"
    """How the order of tokens reaches the model.

    - learned: a table of embeddings (BERT's).
    - sinusoidal: fixed sines and cosines (Vaswani et al. 2017, section 3.5), scaled to a root mean square of
      initializer_range, like initial word vectors.
    - rotary: every block rotates queries and keys by their positions (Su et al. 2021).
    - relative: every block adds to its scores a term of the distance between query and key, and one of whether both are
      in the same segment. Such a model also has the query stream that objective.predict=permuted needs (XLNet, Yang et
      al. 2019, sections 2.3 to 2.5).
    - bucketed: a table of embeddings, and every block adds to its scores a learned number for each head and each bucket
      of distances between query and key; all blocks share these numbers (Raffel et al. 2020, section 2.1; MPNet's).
    - disentangled: every block adds to its scores the products of the query, and of the key, with learned vectors of
      their distance, which all blocks share (He et al. 2021, section 3.1; DeBERTa's).
    - none: only LSTM layers know the order."""
    clamped_distance: Rows | None = None
    """With positions=relative: larger distances count as this one. None: every distance counts as it is. With
    positions=disentangled: the distance at which the last bucket begins."""
    distance_buckets: Annotated[int, Field(ge=2, le=1 << 16)] | None = None
    """With positions=disentangled: number of buckets of distances in each direction. Distances below half of this
    number have a bucket each; larger distances share buckets, which widen with the distance."""
    class_token: ClassToken = "first"
    """Place of [CLS] in a sequence: before the text (BERT's), or after its last [SEP] (XLNet's)."""
    rotary_base: RotaryBase = 10_000.0
    """Base of the rotation's wavelengths in blocks whose attention is global: a longer context needs a larger one."""
    local_rotary_base: RotaryBase = 10_000.0
    """Base of the rotation's wavelengths in blocks whose attention is local."""
    local_window: Annotated[int, Field(gt=0, le=1 << 20)] | None = None
    """Tokens on each side that a query attends to in blocks whose attention is local. None: attention is global in all
    blocks."""
    global_every: Layers = 1
    """With local_window: every n-th block has global attention, beginning with the first block. With 3, as in
    ModernBERT, these are the first block, the fourth, the seventh, and so on."""
    first_position: Annotated[int, Field(ge=0, le=1 << 20)] = 0
    """Row of the position table for a sequence's first token. RoBERTa's is 2, the row after its padding id."""
    causal: bool = False
    """Whether each token attends only to itself and earlier tokens, as in GPT (Radford et al. 2018, section 3.1).
    Needed for objective.predict=next. The pooled vector is then the last token's instead of the first token's."""
    num_segments: Annotated[int, Field(ge=0, le=1 << 24)] = 2
    """Rows of the segment (token type) table. 0: there is none."""
    character_filters: Annotated[tuple[Width, ...], Field(max_length=WIDEST_FILTER)] = ()
    """With layer=lstm: filters of a convolution over the bytes of each piece, which takes the place of the word table:
    the n-th number is that of the filters n bytes wide, up to 7 (Kim et al. 2016). Empty: a word table."""
    highways: Annotated[int, Field(ge=0, le=100)] = 2
    """Highway layers after the convolution over bytes."""
    num_task_types: Annotated[int, Field(ge=0, le=1 << 20)] = 0
    """Rows of the task type table (ERNIE 2.0, Sun et al. 2020, section 3.1). Every token gets row 0. With 0 rows there
    is no table."""
    discriminator: bool = False
    """Whether the model tells replaced tokens from true ones, as ELECTRA does (Clark et al. 2020, section 2). It then
    has this one head and no pooler. Needed for objective.predict=replaced."""
    discriminator_head: Literal["transform", "product"] = "transform"
    """The head that finds replaced tokens: a dense layer and the activation before the product with one vector
    (transform, ELECTRA's); or the product alone (product), which transformers loads as a classifier of tokens."""
    generator_divisor: Annotated[int, Field(gt=0, le=1_000)] | None = None
    """Factor by which the generator, whose predictions replace input tokens, is smaller than the discriminator. Its
    hidden_size, num_heads and feedforward_size are divided by this number, but not its number of blocks. 4 in
    ELECTRA-small, 3 in ELECTRA-base, 1 in DeBERTa-v3. None: no generator, as in published files of a discriminator."""
    generator_layers: Layers | None = None
    """Layers of the generator. None: as many as the discriminator has. DeBERTa-v3's generator has half as many."""
    shared_embeddings: Literal["all", "disentangled", "none"] = "all"
    """Which embeddings generator and discriminator share.

    - all: both read and train the same tables and their LayerNorm (ELECTRA's; Clark et al. 2020, section 3.2).
    - disentangled: the discriminator's word and position tables are the generator's plus a difference that begins at
      zero. The generator's loss trains the generator's tables, the discriminator's loss only the difference (He et al.
      2021, arXiv 2111.09543, section 3.2; DeBERTa-v3's). All other tables, and the LayerNorm, are each model's own.
    - none: each model has its own embeddings."""
    vocabulary_size: Rows | None = None
    """Pieces in the vocabulary (V). None: the size of the tokenizer's vocabulary."""
    word_rows: Rows | None = None
    """Rows of the word table. None: one for each piece. Published models may have more. Rows past the vocabulary are
    kept and exported, but the model never predicts their ids, and masking never draws them."""
    activation: Activation = "gelu_tanh"
    """GELU by tanh (the original's code since February 2019), GELU by the error function (its checkpoints of 2018), or
    SiLU, x sigmoid(x)."""
    head_activation: Activation | None = None
    """Activation before the output of masked-token prediction, if it differs from the blocks' activation, as in some
    published models. None: the blocks' activation."""
    norm: Literal["post", "pre"] = "post"
    """Where a block has its norms: after each residual sum (BERT's), or before attention and feed-forward, and once
    after the last block (Xiong et al. 2020). With pre, the first block has no norm before its attention if a norm
    follows the embeddings."""
    norm_kind: Literal["layer", "rms"] = "layer"
    """What a norm does: it subtracts the mean and divides by the standard deviation (layer, BERT's), or divides by the
    root mean square (rms, Zhang and Sennrich 2019)."""
    embedding_norm: bool = True
    """Whether a norm follows the embeddings. Without one, and with norm=pre, the first block is like all others."""
    feedforward: Literal["dense", "gated"] = "dense"
    """What is between the two matrices of a block's feed-forward part: only the activation (dense, BERT's); or the
    first matrix is twice as wide, and the activation of one half of its output is multiplied by the other half (gated:
    GeGLU, Shazeer 2020)."""
    biases: bool = True
    """Whether linear layers and norms have biases. The vocabulary layer, the heads of pairs, replaced tokens and tasks,
    and the dense layer of pooler=gelu always have them."""
    block_biases: bool = True
    """Whether the linear layers of blocks have biases; this does not change norms and other layers."""
    head: Literal["transform", "product"] = "transform"
    """What predicts tokens from vectors: a dense layer, the activation and a norm before the product with a table, and
    a bias for each piece (transform, BERT's); or the product alone (product)."""
    mask_decoder: bool = False
    """Whether tokens are predicted by a mask decoder: the last block runs twice more on vectors that know their
    absolute positions. The queries begin as the input of the last block plus a learned vector of the position; keys and
    values are the input of the last block (He et al. 2021, section 3.2; DeBERTa's). In a model with a discriminator,
    only the generator has it. It is computed only where tokens are predicted."""
    tied_words: bool = True
    """Whether tokens are predicted by a product with the word table; otherwise the head has its own table."""
    pooler: Literal["tanh", "gelu", "relu", "transform"] = "tanh"
    """Layers between the encoder and the head of a task: a dense layer and tanh on the pooled vector (tanh, BERT's); a
    dense layer and GELU or ReLU on it (gelu, ELECTRA's; relu, DistilBERT's); or a dense layer, GELU and a norm on every
    vector that the head reads, like the layers before the output of masked-token prediction (transform, ModernBERT's).
    """
    dropout: Rate = 0.1
    """Dropout rate on the embeddings and on each block's two output projections."""
    attention_dropout: Rate = 0.1
    """Dropout rate on the attention probabilities."""
    initializer_range: Annotated[float, Field(gt=0, le=10.0)] = 0.02
    """Standard deviation of the truncated normal that weights start from."""
    layer_norm_epsilon: Annotated[float, Field(ge=1e-30, le=1e-2)] = 1e-12
    """Added in norms to the variance or, with norm_kind=rms, to the mean square."""
    compute_dtype: ComputeType = "auto"
    """Type of the matrix products; parameters, softmax, LayerNorm, loss and optimizer are always float32. With auto it
    is bfloat16 on TPUs, on GPUs from compute capability 8.0 on and on CPUs with AVX512-BF16 or AMX, float32
    elsewhere."""

    def _conflicts(self) -> Iterator[str]:
        width, heads = self._current("hidden_size"), self._current("num_heads")
        if self.layer == "lstm" and self.hidden_size % 2:
            yield f"{width} is odd, and LSTM layers divide it between two directions; choose an even width"
        if self.layer != "lstm" and self.hidden_size % self.num_heads:
            yield f"{width} is not a multiple of {heads}; change one of them (BERT's heads are 64 wide)"
        table = self._current("embedding_size") if self.embedding_size else width
        if self.positions in ("sinusoidal", "relative") and self.table_size % 2:
            yield f"{table} is odd and {self._current('positions')} pairs each sine with a cosine; choose an even width"
        if self.clamped_distance is not None and self.positions not in ("relative", "disentangled"):
            yield f"{self._current('clamped_distance')} needs relative or disentangled positions; leave it out"
        middle = (self.distance_buckets or 0) // 2
        if middle and self.clamped_distance is not None and self.clamped_distance - 1 <= middle:
            yield (
                f"{self._current('clamped_distance')} is too small for {self._current('distance_buckets')}: give "
                f"{middle + 2} or more"
            )
        if self.mask_decoder and self.discriminator and not self.generator_divisor:
            yield f"{self._current('mask_decoder')} has no effect: it is for a generator, which the model lacks"
        if self.num_heads % (self.key_value_heads or 1):
            yield f"{heads} is not a multiple of {self._current('key_value_heads')}; change one of them"
        if self.key_value_heads and self.positions in ("relative", "bucketed", "disentangled"):
            yield f"{self._current('key_value_heads')} needs rotary, learned or sinusoidal positions; leave it out"
        if self.positions == "rotary" and self.head_size % 2:
            yield (
                f"{width} with {heads} makes heads {self.head_size} wide and {self._current('positions')} turns pairs "
                "of features; choose an even width"
            )
        sizes = {"hidden_size": self.hidden_size, "num_heads": self.num_heads, "feedforward_size": self.inner_size}
        sizes |= {"key_value_heads": self.key_value_heads} if self.key_value_heads else {}
        for name, size in sizes.items():
            if size % (self.generator_divisor or 1):
                yield (
                    f"{self._flag(name, size)} is not a multiple of {self._current('generator_divisor')}, which "
                    "divides it for the generator; change one of them"
                )

    @property
    def table_size(self) -> int:
        """Width of the embedding tables (E): `embedding_size` or its default."""
        return self.embedding_size or self.input_size

    @property
    def input_size(self) -> int:
        """Width of the vectors that enter the first layer: half of hidden_size with LSTM layers."""
        return self.hidden_size // 2 if self.layer == "lstm" else self.hidden_size

    @property
    def pooled_ends(self) -> tuple[Literal["first", "last"], ...]:
        """The token of a sequence whose vector stands for it; of LSTM layers, the token for each half of the vector:
        the token at which that direction has read the whole sequence."""
        if self.layer == "lstm":
            return "last", "first"
        return ("last" if self.causal or self.class_token == "last" else "first",)

    @property
    def one_sided(self) -> str | None:
        """What makes a token's vector blind to one side of the text, in words; None if it sees both."""
        if self.layer == "lstm":
            return f"the model has LSTM layers ({Setting('model.layer', 'lstm')}): each direction sees only one side of"
        return (
            f"the model is causal ({Setting('model.causal')}): it doesn't see what stands after"
            if self.causal
            else None
        )

    @property
    def has_query_stream(self) -> bool:
        """Whether vectors of a second stream, which don't know their own tokens, predict them."""
        return self.positions == "relative"

    @property
    def linear_biases(self) -> bool:
        """Whether the linear layers of blocks have biases."""
        return self.biases and self.block_biases

    @property
    def attention_biases(self) -> bool:
        """Whether the products of attention have biases. With relative positions queries have biases of their own."""
        return self.linear_biases and not self.has_query_stream

    @property
    def has_pair_head(self) -> bool:
        """Whether the pretrained model has a pooler and a head for pairs."""
        return not (self.discriminator or self.has_query_stream or self.layer == "lstm")

    @property
    def num_word_rows(self) -> int:
        """Rows of the word table: the larger of `word_rows` and `vocabulary_size`. Needs `vocabulary_size`."""
        return max(self.word_rows or 0, self.vocabulary_size or 0)

    @property
    def generator(self) -> "ModelConfig | None":
        """The config of a discriminator's generator; None if there is no generator.

        The generator has BERT's heads, and embedding tables of the discriminator's width (`shared_embeddings`). If its
        hidden_size differs from that width, a matrix projects the embeddings (Clark et al. 2020, section 3.2).
        """
        if self.generator_divisor is None:
            return None
        width = self.hidden_size // self.generator_divisor
        return self.encoder.replace(
            hidden_size=width,
            embedding_size=None if self.table_size == width else self.table_size,
            num_heads=self.num_heads // self.generator_divisor,
            key_value_heads=self.key_value_heads and self.key_value_heads // self.generator_divisor,
            feedforward_size=self.inner_size // self.generator_divisor,
            num_layers=self.generator_layers or self.num_layers,
            mask_decoder=self.mask_decoder,
        )

    @property
    def networks(self) -> "tuple[ModelConfig, ...]":
        """The networks that pretraining trains: the model, and the generator of a discriminator."""
        return (self, self.generator) if self.generator else (self,)

    @property
    def encoder(self) -> "ModelConfig":
        """These settings without what only pretraining has: the heads of tokens and a generator."""
        return self.replace(**{name: type(self).model_fields[name].default for name in _OF_PRETRAINING})

    @property
    def norms_embeddings(self) -> bool:
        """Whether a norm follows the embeddings."""
        return self.embedding_norm and not self.has_query_stream

    @property
    def begins_without_norm(self) -> bool:
        """Whether the first block has no norm before its attention, because one follows the embeddings."""
        return self.norm == "pre" and self.embedding_norm

    @property
    def transforms_head(self) -> bool:
        """Whether a dense layer, the activation and a norm precede the product that predicts tokens."""
        return self.head == "transform" and not self.has_query_stream

    @property
    def prediction_head(self) -> "ModelConfig":
        """These settings with the activation that the layers before the output of masked-token prediction have."""
        return self.replace(activation=self.head_activation or self.activation)

    @property
    def stored_layers(self) -> int:
        """Number of blocks whose parameters are stored: one if all blocks share them."""
        return 1 if self.shared_layers else self.num_layers

    def is_global(self, layer: int) -> bool:
        """Whether queries attend to all distances in block number `layer`, from 0."""
        return self.local_window is None or layer % self.global_every == 0

    @property
    def head_size(self) -> int:
        """Width of one attention head (K)."""
        return self.hidden_size // self.num_heads

    @property
    def inner_size(self) -> int:
        """Width inside a block's feed-forward part (F): `feedforward_size` or its default."""
        return self.feedforward_size or 4 * self.hidden_size

    @classmethod
    def modern(cls, **changes) -> "ModelConfig":
        """22 layers of width 768: ModernBERT-base (Warner et al. 2024, table 4), except for the vocabulary's size."""
        settings: dict[str, Any] = {
            "model_type": "modernbert",
            "num_layers": 22,
            "feedforward_size": 1152,
            "max_positions": 8192,
            "positions": "rotary",
            "rotary_base": 160_000.0,
            "local_window": 64,
            "global_every": 3,
            "num_segments": 0,
            "activation": "gelu_erf",
            "norm": "pre",
            "feedforward": "gated",
            "biases": False,
            "pooler": "transform",
            "dropout": 0.0,
            "attention_dropout": 0.0,
            "layer_norm_epsilon": 1e-5,
        }
        return cls(**settings | changes)

    @classmethod
    def tiny(cls, **changes) -> "ModelConfig":
        """2 layers of width 128: the smallest published size."""
        return cls(**{"num_layers": 2, "hidden_size": 128, "num_heads": 2} | changes)

    @classmethod
    def medium(cls, **changes) -> "ModelConfig":
        """8 layers of width 512. With 128 positions it is the model of He and Xu (2020), section 3."""
        return cls(**{"num_layers": 8, "hidden_size": 512, "num_heads": 8} | changes)

    @classmethod
    def base(cls, **changes) -> "ModelConfig":
        """12 layers of width 768: BERT-base."""
        return cls(**changes)

    @classmethod
    def large(cls, **changes) -> "ModelConfig":
        """24 layers of width 1024: BERT-large."""
        return cls(**{"num_layers": 24, "hidden_size": 1024, "num_heads": 16} | changes)
