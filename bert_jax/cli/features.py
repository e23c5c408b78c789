"""bert-jax features RUN INPUT OUTPUT: writes vectors of texts from chosen layers of a trained model."""

from collections import Counter
from typing import Any, Literal

from bert_jax.cli.arguments import PlaceArgument, RunArgument, SavedArguments
from bert_jax.cli.flags import Positional
from bert_jax.inference.choices import Join, Pool, Precision


class Features(SavedArguments):
    """Vectors of texts from chosen layers of a model, as in the feature-based experiment of Devlin et al. (2019),
    section 5.3. The output has one row for each text. Texts longer than the model's positions are cut and counted.
    """

    LINE = "bert-jax features"

    run: RunArgument
    """A run, one of its checkpoints, or a Hugging Face directory."""
    input: Positional[str]
    """One text on each line: a file, plain, .gz or .zst, or - for standard input. With --texts: a .csv, .tsv or .jsonl,
    also compressed, or a data set like tfds:glue/cola:train."""
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
    dtype: Precision = "float32"
    """Type of the numbers that are written."""
    compute_dtype: Literal["float32", "bfloat16"] | None = None
    """Type of the matrix products, --dtype of other commands. Without it: float32 on a CPU, elsewhere the type that the
    model was trained in."""


def run(words: list[str]) -> None:
    """Parses the command line; reads, computes and writes at the same time; prints the number of texts."""
    args = Features.parse(words)
    from bert_jax.config.wording import counted
    from bert_jax.finetuning.dataset import say_repairs
    from bert_jax.inference.bert import load
    from bert_jax.inference.feature_files import check_output, texts_of, write_features
    from bert_jax.system.progress import say, stage

    check_output(args.output, args.input)
    repairs: Counter[Any] = Counter()
    texts = texts_of(args.input, args.texts, repairs)
    bert = load(args.run, args.step, args.average, args.compute_dtype)
    found = bert.features(texts, args.layers, args.join, args.pool, args.dtype)
    with stage("features", None, "texts") as progress_bar:
        write_features(args.output, progress_bar.counted(found), args.pool != "none")
    say_repairs(args.input, repairs)
    say(f"{args.output}: features of {counted(progress_bar.done, 'texts')}")
