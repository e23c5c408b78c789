"""bert-jax score RUN INPUT [OUTPUT]: scores texts by the log probabilities of their tokens.

bert-jax score RUN --pairs FILE...: how often a model scores the acceptable one of two sentences higher.
"""

import contextlib
import sys
from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import IO, TYPE_CHECKING, Annotated, Any

from pydantic import Field

from bert_jax.cli.arguments import InferenceArguments, JsonArguments, PlaceArgument, RunArgument
from bert_jax.cli.flags import Positional
from bert_jax.config.objective import ScoreMethod
from bert_jax.system.errors import UsageError

if TYPE_CHECKING:
    from bert_jax.inference.batches import Text
    from bert_jax.inference.scoring import ScoredText
    from bert_jax.text.tokenizer import Tokenizer

_DECIMALS = 6
"""Decimals of a written score."""


class ScoreArguments(InferenceArguments, JsonArguments):
    """Arguments that choose a model and what its scores are."""

    run: RunArgument
    """A run, one of its checkpoints, or a Hugging Face directory."""
    method: ScoreMethod | None = None
    """What isn't seen when a token is predicted: the token alone, or also the later pieces of its word. Without it:
    token. Causal models mask nothing and take no method."""


class ScorePairs(ScoreArguments):
    """How often a model gives the acceptable one of two sentences the higher score, by file and by group. Equal scores
    count half. All means are over files, as BLiMP's are.
    """

    LINE = "bert-jax score"

    pairs: Annotated[tuple[str, ...], Field(min_length=1)]
    """Files, folders or patterns of rows with both sentences: .jsonl, .csv or .tsv, also compressed."""
    columns: Annotated[tuple[str, ...], Field(min_length=2, max_length=2)] = ("sentence_good", "sentence_bad")
    """Columns of the acceptable and of the other sentence."""
    groups: tuple[str, ...] | None = None
    """Columns of groups. Without it: field and linguistics_term, where rows have them."""
    normalize: bool = False
    """Compare the scores a token, for sentences of different lengths."""
    save: bool = False
    """Keep the accuracies in the run, as pairs.json, which bert-jax report shows."""

    def execute(self) -> None:
        """Scores all pairs, and prints tables or one JSON object."""
        from bert_jax.cli.summary import print_pairs
        from bert_jax.finetuning.dataset import say_repairs
        from bert_jax.inference.minimal_pairs import pair_accuracies, pair_files, read_pairs
        from bert_jax.run.run_config import read_config
        from bert_jax.run.run_directory import RunDirectory
        from bert_jax.system.facts import json_line
        from bert_jax.system.files import write_json
        from bert_jax.system.progress import stage

        files, repairs = pair_files(self.pairs), Counter[str]()
        if self.save:
            read_config(self.run)  # raises if it is no run
        bert = self.loaded(self.run, self.dtype)
        with stage("score", None, "sentences") as bar:
            pairs = read_pairs(files, self.columns, self.groups, repairs)
            stream = partial(bert.score_stream, method=self.method)
            results = pair_accuracies(files, pairs, lambda texts: bar.counted(stream(texts)), repairs, self.normalize)
        say_repairs("pairs", repairs)
        how = {"method": bert.scorer.method(self.method) or "causal", "normalized": self.normalize}
        results = results.updated(how | ({"steps": bert.steps[-1]} if bert.steps else {}))
        if self.save:
            write_json(RunDirectory(self.run).pairs_file, results.content)
        if self.json:
            print(json_line(results.content))
        else:
            print_pairs(results)


class Score(ScoreArguments):
    """Scores of texts, the sums of their tokens' log probabilities in nats: the pseudo-log-likelihood of a model that
    masks (Salazar et al. 2020), the log-likelihood of a causal one. Or the accuracy on pairs of sentences: bert-jax
    score RUN --pairs FILE (bert-jax score --pairs --help).
    """

    LINE = "bert-jax score"
    FLAG_OF_SETTING = {"columns": "--columns", "groups": "--groups"}
    OTHER_FORMS = {"--pairs": ScorePairs}

    input: Positional[str]
    """One text on each line: a file, plain, .gz or .zst, or - for standard input. Or a source of a corpus, such as
    jsonl:FILE#FIELD, each of whose lines is a text. With --texts: a .csv, .tsv or .jsonl, also compressed."""
    output: Positional[PlaceArgument | None] = None
    """File to write: .jsonl, with a line for each text. Without it: standard output."""
    texts: str | None = None
    """Column of the input that holds the texts. Without it: each line of the input is a text."""
    tokens: bool = False
    """Write each token with its own log probability, too."""

    def execute(self) -> None:
        """Reads, computes and writes at the same time; prints the perplexity of all texts at the end."""
        from bert_jax.finetuning.dataset import say_repairs
        from bert_jax.inference.feature_files import name_of
        from bert_jax.inference.scoring import ScoreTotals
        from bert_jax.system.facts import json_line, print_rows
        from bert_jax.system.files import check_written
        from bert_jax.system.progress import say, stage

        repairs = Counter[str]()
        if self.output:
            for read in self._inputs():
                check_written(self.output, read)
            if self.output.suffix != ".jsonl":
                raise UsageError(f"{self.output}: scores are written as JSON lines; name it .jsonl")
        texts = self._read(repairs)
        bert = self.loaded(self.run, self.dtype)
        totals = ScoreTotals(bert.scorer.method(self.method) or "causal")
        with stage("score", None, "texts") as progress_bar, self._opened_output() as file:
            for scored in progress_bar.counted(bert.score_stream(texts, self.method)):
                totals.add(scored)
                print(json_line(self._row(scored, bert.tokenizer)), file=file)
            if not totals.content["texts"]:
                raise UsageError(f"{name_of(self.input)} has no text to score; give some")
        say_repairs(name_of(self.input), repairs)
        figures = [(name.replace("_", " "), _formatted(value)) for name, value in totals.content.items()]
        if self.json:
            print(json_line(totals.content))
        elif self.output:
            print_rows(f"{self.output}", (), figures)
        else:
            say(", ".join(f"{name} {value}" for name, value in figures))

    def _inputs(self) -> list[str]:
        """The input, and the files that it names as a source."""
        from bert_jax.records.sources import names_source
        from bert_jax.system.files import matching_files

        if not names_source(self.input):
            return [self.input]
        place = self.input.partition(":")[2]
        places = {place, place.rpartition("#")[0]} - {""}
        return [self.input, *(str(file) for one in places for file in matching_files(one))]

    def _read(self, repairs: Counter[str]) -> Iterator["Text"]:
        """The texts of the input. Raises UsageError, before the first, if it can't be read."""
        from bert_jax.config.data import DataConfig
        from bert_jax.inference.feature_files import read_texts
        from bert_jax.records.corpus import open_corpus
        from bert_jax.records.sources import names_source

        if self.texts is None and names_source(self.input):
            corpus = open_corpus(DataConfig(source=(self.input,)))
            return (line for document in corpus.documents() for line in document)
        return read_texts(self.input, (self.texts,) if self.texts else (), repairs)

    @contextlib.contextmanager
    def _opened_output(self) -> Iterator[IO[str]]:
        """Yields the open file of rows, which appears at the end of the block, or standard output."""
        from bert_jax.system.files import replacing

        if self.output is None:
            yield sys.stdout
            return
        with replacing(self.output) as temporary, open(temporary, "w", encoding="utf-8") as file:
            yield file

    def _row(self, scored: "ScoredText", tokenizer: "Tokenizer") -> dict[str, Any]:
        row: dict[str, Any] = {"text": scored.text, "score": None, "tokens": len(scored.ids), "score_per_token": None}
        if scored.score is not None and scored.logs is not None:
            row["score"] = round(scored.score, _DECIMALS)
            row["score_per_token"] = round(scored.score / len(scored.ids), _DECIMALS)
            if self.tokens:
                row["pieces"] = [tokenizer.spelled(number) for number in scored.ids]
                row["scores"] = [round(log, _DECIMALS) for log in scored.logs.tolist()]
        return row


def _formatted(value: object) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
