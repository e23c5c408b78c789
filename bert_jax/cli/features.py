"""bert-jax features RUN INPUT OUTPUT: vectors of texts from chosen layers of a trained model."""

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Annotated

import tyro

from bert_jax.cli.arguments import PlaceArgument, RunArgument, parse
from bert_jax.data.decoded_lines import decoded_lines
from bert_jax.data.task_files import format_of, has_columns, task_records
from bert_jax.data.task_record import Record
from bert_jax.finetuning.columns import text
from bert_jax.finetuning.dataset import say_repairs
from bert_jax.inference.batches import Text
from bert_jax.inference.bert import load
from bert_jax.inference.feature_files import check_output, write_features
from bert_jax.inference.features import Feature, Join, Pool, Precision
from bert_jax.system.bucket import place_of
from bert_jax.system.errors import UsageError
from bert_jax.system.progress import Stage, say, stage

_HELP = (
    "Vectors of texts from chosen layers of a model, as in the feature-based experiment of Devlin et al. (2019), "
    "section 5.3. Row by row as the input; a text longer than the model has positions is cut, and how many is said."
)
_TEXTS = (
    "Columns of the input that hold the texts: one, or a pair's two. Without it each line of the input is a text, an "
    "empty one too."
)
_LAYERS = (
    "Layers, in the order in which they are joined: 1, 2, ... from the first block, or -1, -2, ... from the last; 0 "
    "are the embeddings. Without it the last four, -1 -2 -3 -4, or all of a model that has fewer."
)
_JOIN = "What becomes of a token's vectors from several layers: one behind the other, added, averaged, or kept apart."
_POOL = (
    "none: a vector for every token, [CLS] and [SEP] included. Otherwise one for each text: that of [CLS] (of a causal "
    "model the last token's), or the mean or maximum of all its tokens', [CLS] and [SEP] included."
)
_SHOWN_EVERY = 64


@dataclass(frozen=True)
class Features:
    """Arguments."""

    run: RunArgument
    """A run, one of its checkpoints, or a Hugging Face directory."""
    input: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="INPUT")]
    """A text a line: a file, plain, .gz or .zst, or - for standard input. With --texts a .csv, .tsv or .jsonl, also
    packed, or a set like tfds:glue/cola:train."""
    output: Annotated[tyro.conf.Positional[PlaceArgument], tyro.conf.arg(metavar="OUTPUT")]
    """File to write, whole or not at all: .npz, .parquet or .jsonl."""
    texts: Annotated[tuple[str, ...], tyro.conf.arg(help=_TEXTS)] = ()
    layers: Annotated[tuple[int, ...], tyro.conf.arg(help=_LAYERS)] = ()
    join: Annotated[Join, tyro.conf.arg(help=_JOIN)] = "concat"
    pool: Annotated[Pool, tyro.conf.arg(help=_POOL)] = "none"
    dtype: Annotated[Precision, tyro.conf.arg(help="Of the numbers written.")] = "float32"


def run(arguments: list[str]) -> None:
    """Parses, reads, computes and writes at the same time, says what was written."""
    asked = parse(Features, "features", _HELP, arguments)
    check_output(asked.output, asked.input)
    repairs = Counter()
    texts = _texts_of(asked, repairs)
    found = load(asked.run).features(texts, asked.layers, asked.join, asked.pool, asked.dtype)
    with stage("features", None, "texts") as shown:
        write_features(asked.output, _counted(found, shown), asked.pool != "none")
    say_repairs(asked.input, repairs)
    say(f"{asked.output}: features of {shown.done:,} texts")


def _texts_of(asked: Features, repairs: Counter[str]) -> Iterator[Text]:
    """The texts of the input, read as they are taken. Raises UsageError at once where it can't be read so."""
    if len(asked.texts) > 2:
        raise UsageError(f"--texts {' '.join(asked.texts)} are {len(asked.texts)} columns; give one, or a pair's two")
    if format_of(asked.input) in ("conll", "conllu"):
        raise UsageError(f"{asked.input} has words and no texts; give a text a line, or a .csv, .tsv or .jsonl")
    if asked.texts:
        if asked.input == "-":
            raise UsageError("standard input holds a text a line and has no columns; leave --texts out")
        return (_of_record(record, asked.texts) for record in task_records(asked.input, repairs))
    if has_columns(asked.input):
        raise UsageError(f"{asked.input} has columns; name those of the texts by --texts, one or a pair's two")
    path = place_of("/dev/stdin" if asked.input == "-" else asked.input)
    return (line.rstrip("\r\n") for line in decoded_lines(path, repairs))


def _of_record(record: Record, columns: tuple[str, ...]) -> Text:
    found = tuple(text(record, column) for column in columns)
    return found if len(found) == 2 else found[0]


def _counted(found: Iterable[Feature], shown: Stage) -> Iterator[Feature]:
    """`found`; every few of them what is shown is brought up to date, which takes longer than computing one may."""
    passed = 0
    for passed, one in enumerate(found, 1):
        yield one
        if passed % _SHOWN_EVERY == 0:
            shown.advance(_SHOWN_EVERY)
    shown.advance(passed % _SHOWN_EVERY)
