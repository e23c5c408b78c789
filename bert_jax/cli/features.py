"""bert-jax features RUN INPUT OUTPUT: vectors of texts from chosen layers of a trained model."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

import tyro

from bert_jax.cli.arguments import Arguments, Command, PlaceArgument, RunArgument
from bert_jax.inference.choices import Join, Pool, Precision

_SHOWN_EVERY = 64


class Features(Arguments):
    """Arguments."""

    run: RunArgument
    """A run, one of its checkpoints, or a Hugging Face directory."""
    input: tyro.conf.Positional[str]
    """A text a line: a file, plain, .gz or .zst, or - for standard input. With --texts a .csv, .tsv or .jsonl, also
    packed, or a set like tfds:glue/cola:train."""
    output: tyro.conf.Positional[PlaceArgument]
    """File to write, whole or not at all: .npz, .parquet or .jsonl."""
    texts: tuple[str, ...] = ()
    """Columns of the input that hold the texts: one, or a pair's two. Without it each line of the input is a text, an
    empty one too."""
    layers: tuple[int, ...] = ()
    """Layers, in the order in which they are joined: 1, 2, ... from the first block, or -1, -2, ... from the last; 0
    are the embeddings. Without it the last four, -1 -2 -3 -4, or all of a model that has fewer."""
    join: Join = "concat"
    """What becomes of a token's vectors from several layers: one behind the other, added, averaged, or kept apart."""
    pool: Pool = "none"
    """What stands for a text. With `none` a vector for every token, [CLS] and [SEP] included. Otherwise one for each
    text: that of [CLS] (of a causal model the last token's), or the mean or maximum of all its tokens', [CLS] and
    [SEP] included."""
    dtype: Precision = "float32"
    """Type of the numbers that are written."""


COMMAND = Command(
    "features",
    Features,
    "Vectors of texts from chosen layers of a model, as in the feature-based experiment of Devlin et al. (2019), "
    "section 5.3. Row by row as the input; a text longer than the model has positions is cut, and how many is said.",
)


def run(arguments: list[str]) -> None:
    """Parses, reads, computes and writes at the same time, says what was written."""
    asked = COMMAND.parse(arguments)
    from bert_jax.cli.features_texts import texts_of
    from bert_jax.finetuning.dataset import say_repairs
    from bert_jax.inference.bert import load
    from bert_jax.inference.feature_files import check_output, write_features
    from bert_jax.system.progress import say, stage

    check_output(asked.output, asked.input)
    repairs = Counter()
    texts = texts_of(asked.input, asked.texts, repairs)
    found = load(asked.run).features(texts, asked.layers, asked.join, asked.pool, asked.dtype)
    with stage("features", None, "texts") as shown:
        write_features(asked.output, _counted(found, shown), asked.pool != "none")
    say_repairs(asked.input, repairs)
    say(f"{asked.output}: features of {shown.done:,} texts")


def _counted(found: Iterable[Any], shown: Any) -> Iterator[Any]:
    """`found`; every few of them what is shown is brought up to date, which takes longer than computing one may."""
    passed = 0
    for passed, one in enumerate(found, 1):
        yield one
        if passed % _SHOWN_EVERY == 0:
            shown.advance(_SHOWN_EVERY)
    shown.advance(passed % _SHOWN_EVERY)
