"""bert-jax features RUN INPUT OUTPUT: writes the vectors of texts, or of their tokens from chosen layers."""

from collections import Counter
from typing import Annotated, Any, Literal

from pydantic import Field

from bert_jax.cli.arguments import PlaceArgument, RunArgument, SavedArguments
from bert_jax.cli.flags import Positional
from bert_jax.config.vectors import Join, Pool, Precision
from bert_jax.system.errors import UsageError

_OF_LAYERS = {"layers", "join", "pool"}
"""Flags that ask for vectors of layers, even from a run that was trained for vectors of texts."""


class Features(SavedArguments):
    """Vectors of texts. The output has one row for each text. Texts that are too long are cut and counted. A run of
    bert-jax finetune vectors gives the vectors that it was trained for, of length 1, unless --layers, --join or --pool
    ask for others. Any other run gives vectors from chosen layers, as in the feature-based experiment of Devlin et al.
    (2019), section 5.3.
    """

    LINE = "bert-jax features"

    run: RunArgument
    """A run, one of its checkpoints, or a Hugging Face directory."""
    input: Positional[str]
    """One text on each line: a file, plain, .gz or .zst, or - for standard input. With --texts: a .csv, .tsv or .jsonl,
    also compressed, a .parquet, or a data set like tfds:glue/cola:train."""
    output: Positional[PlaceArgument]
    """File to write: .npz, .parquet or .jsonl. It is written completely or not at all."""
    texts: tuple[str, ...] = ()
    """Columns of the input that hold the texts: one, or two for pairs. Without it: each line of the input is a text,
    also an empty line."""
    layers: tuple[int, ...] = ()
    """Layers, in the order in which they are joined: 1, 2, ... from the first block, or -1, -2, ... from the last; 0 is
    the embeddings. Without it: the last four, -1 -2 -3 -4, or all layers of a smaller model."""
    join: Join = "concat"
    """How a token's vectors from several layers are joined: concatenated, added, averaged, or kept apart."""
    pool: Pool = "none"
    """How the vectors of a text's tokens are pooled. `none`: one vector for every token. `cls`: the vector of [CLS], or
    of the last token in a causal model. `mean` and `max`: over all tokens. [CLS] and [SEP] count as tokens."""
    width: Annotated[int, Field(gt=0)] | None = None
    """Number of components to keep of the vectors that the run was trained for, from the first; they are then scaled to
    length 1. Fewer take less space and time. A run that was not trained for vectors gives those of the mean over its
    last layer. Without it: all."""
    role: str | None = None
    """What the texts are: `query`, `passage` or the name of another prompt of the run, which is put before each text.
    Without it: the run's default prompt, if it has one."""
    dtype: Precision = "float32"
    """Type of the numbers that are written."""
    compute_dtype: Literal["float32", "bfloat16"] | None = None
    """Type of the matrix products (--dtype in other commands). Without it: float32 on a CPU, elsewhere the type that
    the model was trained in."""

    def execute(self) -> None:
        from bert_jax.config.vectors import Prompt
        from bert_jax.config.wording import counted
        from bert_jax.finetuning.dataset import say_repairs
        from bert_jax.inference.feature_files import check_output, name_of, read_texts, write_features
        from bert_jax.inference.features import Choice
        from bert_jax.system.progress import say, stage

        of_layers = [f"--{name}" for name in sorted(_OF_LAYERS & self.model_fields_set)]
        own = " ".join(f"--{name}" for name in ("width", "role") if getattr(self, name))
        if own and of_layers:
            raise UsageError(
                f"{own} is for the vectors that a run was trained for, and {' '.join(of_layers)} for those of layers; "
                "leave one out"
            )
        check_output(self.output, self.input)
        repairs: Counter[Any] = Counter()
        texts = read_texts(self.input, self.texts, repairs)
        bert = self.loaded(self.run, self.compute_dtype)
        if own or bert.embedder.trained and not of_layers:
            choice, prompt = bert.embedder.choice(self.width, self.dtype), bert.embedder.prompt(self.role)
            found = bert.embedder.features(texts, self.width, self.dtype, self.role)
        else:
            prompt = Prompt()
            choice = Choice.of(self.layers, self.join, self.pool, self.dtype, bert.config.num_layers)
            found = bert.features(texts, self.layers, self.join, self.pool, self.dtype)
        with stage("features", None, "texts") as progress_bar:
            write_features(self.output, progress_bar.counted(found), choice.pool != "none", bert.origin(choice, prompt))
        say_repairs(name_of(self.input), repairs)
        say(f"{self.output}: features of {counted(progress_bar.done, 'texts')}, of each {choice.described}")
