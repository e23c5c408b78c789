"""The shape of the network."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from bert_jax.config.settings import Settings

Rate = Annotated[float, Field(ge=0.0, lt=1.0)]
# Bounds far above any BERT, so that no product of sizes overflows and a damaged config.json is refused by name.
Layers = Annotated[int, Field(gt=0, le=1_000)]
Width = Annotated[int, Field(gt=0, le=1 << 20)]
Rows = Annotated[int, Field(gt=0, le=1 << 24)]


ComputeType = Literal["auto", "float32", "bfloat16"]
ModelType = Literal["bert", "roberta", "xlm-roberta", "camembert", "albert", "ernie", "electra"]


class ModelConfig(Settings):
    """The BERT encoder (Devlin et al. 2019, section 3): the defaults are BERT-base's."""

    model_type: ModelType = "bert"
    """Which relative of BERT the model is to transformers: it decides the names in exported files. The other settings
    say what is computed."""
    num_layers: Layers = 12
    """Blocks of the encoder (L)."""
    hidden_size: Width = 768
    """Width of every token's vector (D)."""
    embedding_size: Width | None = None
    """Width of the tables (E), from which a matrix leads to hidden_size: ALBERT's and ELECTRA's are narrower. None:
    hidden_size, and no matrix."""
    num_heads: Width = 12
    """Attention heads a block (H); they divide the width."""
    shared_layers: bool = False
    """Whether all blocks have the same parameters, as in ALBERT (Lan et al. 2020, section 3.1)."""
    feedforward_size: Width | None = None
    """Width inside a block's feed-forward part (F). None: four times hidden_size."""
    max_positions: Rows = 512
    """Length of the longest sequence; the number of rows of a learned position table."""
    positions: Literal["learned", "sinusoidal"] = "learned"
    """Position embeddings: a learned table (BERT's), or fixed sines and cosines (Vaswani et al. 2017, section 3.5),
    scaled to a root mean square of initializer_range, as word vectors at the start."""
    first_position: Annotated[int, Field(ge=0, le=1 << 20)] = 0
    """Row of the position table that a sequence's first token has: RoBERTa's table begins after the padding's id."""
    causal: bool = False
    """Each token attends only to itself and earlier tokens, as in GPT (Radford et al. 2018, section 3.1). Needed for
    objective.predict=next. The pooled vector is then that of the last token instead of the first."""
    num_segments: Rows = 2
    """Rows of the segment (token type) table."""
    num_task_types: Annotated[int, Field(ge=0, le=1 << 20)] = 0
    """Rows of a table of task types, of which every token has the first (ERNIE 2.0, Sun et al. 2020, section 3.1)."""
    discriminator: bool = False
    """Whether the model tells replaced tokens from true ones, as ELECTRA (Clark et al. 2020, section 2): that is its
    one head, and it has no pooler. Needed for objective.predict=replaced."""
    generator_divisor: Annotated[int, Field(gt=0, le=1_000)] | None = None
    """A discriminator's generator, by which its tokens are replaced, has as many blocks; width, heads and feed-forward
    width are the model's divided by this number: 4 in ELECTRA-small, 3 in base. None: no generator, as in published
    files of a discriminator."""
    vocabulary_size: Rows | None = None
    """Pieces in the vocabulary (V). None: the size of the tokenizer's vocabulary."""
    activation: Literal["gelu_tanh", "gelu_erf"] = "gelu_tanh"
    """GELU by tanh (the original's code since February 2019) or by the error function (its checkpoints of 2018)."""
    dropout: Rate = 0.1
    """Dropout rate on the embeddings and on each block's two output projections."""
    attention_dropout: Rate = 0.1
    """Dropout rate on the attention probabilities."""
    initializer_range: Annotated[float, Field(gt=0, le=10.0)] = 0.02
    """Standard deviation of the truncated normal that weights start from."""
    layer_norm_epsilon: Annotated[float, Field(ge=1e-30, le=1e-2)] = 1e-12
    """Added to the variance in LayerNorm."""
    compute_dtype: ComputeType = "auto"
    """Type of the matrix products; parameters, softmax, LayerNorm, loss and optimizer are always float32. With auto it
    is bfloat16 on TPUs, on GPUs from compute capability 8.0 on and on CPUs with AVX512-BF16 or AMX, float32
    elsewhere."""

    @model_validator(mode="after")
    def _width_divides(self) -> "ModelConfig":
        if self.hidden_size % self.num_heads:
            raise ValueError(
                f"model.hidden_size={self.hidden_size} is not a multiple of model.num_heads={self.num_heads}; "
                "change one of them (BERT's heads are 64 wide)"
            )
        if self.positions == "sinusoidal" and self.table_size % 2:
            width = "embedding_size" if self.embedding_size else "hidden_size"
            raise ValueError(
                f"model.{width}={self.table_size} is odd and model.positions=sinusoidal pairs each sine with a "
                "cosine; choose an even width"
            )
        return self

    @model_validator(mode="after")
    def _generator_divides(self) -> "ModelConfig":
        divisor = self.generator_divisor
        if divisor is None:
            return self
        if not self.discriminator:
            raise ValueError(
                f"model.generator_divisor={divisor} is about the generator of a discriminator, which the model isn't; "
                "set model.discriminator=True too, or leave it out"
            )
        if self.causal:
            raise ValueError(
                f"model.causal={self.causal} with model.generator_divisor={divisor}: a generator sees both sides "
                "of what it fills; leave one of the two out"
            )
        sizes = {
            "hidden_size": self.hidden_size,
            "num_heads": self.num_heads,
            "feedforward_size": self.inner_size,
        }
        for name, size in sizes.items():
            if size % divisor:
                raise ValueError(
                    f"model.{name}={size} is not a multiple of model.generator_divisor={divisor}, by which the "
                    "generator's is smaller; change one of them"
                )
        return self

    @property
    def table_size(self) -> int:
        """Width of the tables (E): `embedding_size` or its default."""
        return self.embedding_size or self.hidden_size

    @property
    def generator(self) -> "ModelConfig | None":
        """The generator beside a discriminator, a model with BERT's heads; None if there is none.

        Its tables are the discriminator's, of the same width, from which a matrix leads to its own (Clark et al. 2020,
        section 3.2).
        """
        if self.generator_divisor is None:
            return None
        width = self.hidden_size // self.generator_divisor
        return self.encoder.replace(
            hidden_size=width,
            embedding_size=None if self.table_size == width else self.table_size,
            num_heads=self.num_heads // self.generator_divisor,
            feedforward_size=self.inner_size // self.generator_divisor,
        )

    @property
    def encoder(self) -> "ModelConfig":
        """The model without what a discriminator has instead of BERT's heads: what a fine-tuned model is."""
        return self.replace(discriminator=False, generator_divisor=None)

    @property
    def stored_layers(self) -> int:
        """Blocks whose parameters are stored: one where all share them."""
        return 1 if self.shared_layers else self.num_layers

    @property
    def head_size(self) -> int:
        """Width of one attention head (K)."""
        return self.hidden_size // self.num_heads

    @property
    def inner_size(self) -> int:
        """Width inside a block's feed-forward part (F): `feedforward_size` or its default."""
        return self.feedforward_size or 4 * self.hidden_size

    @classmethod
    def tiny(cls, **changes) -> "ModelConfig":
        """2 layers of width 128: the smallest published size."""
        return cls(**{"num_layers": 2, "hidden_size": 128, "num_heads": 2} | changes)

    @classmethod
    def mini(cls, **changes) -> "ModelConfig":
        """4 layers of width 256."""
        return cls(**{"num_layers": 4, "hidden_size": 256, "num_heads": 4} | changes)

    @classmethod
    def small(cls, **changes) -> "ModelConfig":
        """4 layers of width 512."""
        return cls(**{"num_layers": 4, "hidden_size": 512, "num_heads": 8} | changes)

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
