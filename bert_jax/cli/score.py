"""bert-jax score RUN INPUT [OUTPUT]: scores texts by the log probabilities of their tokens.

bert-jax score RUN --pairs FILE...: how often a model scores the acceptable one of two sentences higher.
"""

import contextlib
import sys
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from bert_jax.cli.arguments import InferenceArguments, JsonArguments, PlaceArgument, RunArgument
from bert_jax.cli.flags import Positional
from bert_jax.config.objective import ScoreMethod
from bert_jax.interchange.model_path import local_place
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
    """What is masked when a token is predicted: the token alone, or also the later pieces of its word. Without it:
    token. Causal models mask nothing and take no method."""


class ScorePairs(ScoreArguments):
    """How often a model gives the acceptable one of two sentences the higher score, by file and by group. Equal scores
    count half. All means are over files, as BLiMP's are.
    """

    LINE = "bert-jax score"

    pairs: Annotated[tuple[str, ...], Field(min_length=1)]
    """Files, folders or patterns of rows with both sentences: .jsonl, .csv, .tsv, or .txt with a sentence a line, also
    compressed."""
    columns: tuple[str, ...] | None = None
    """Two columns: that of the acceptable sentence, and that of the other one. Without it: sentence_good and
    sentence_bad. In a .txt file of sentences, every two lines are a pair: 1 names the first, 2 the second. There,
    without it: 2 and 1."""
    groups: tuple[str, ...] | None = None
    """Columns that name the groups of a pair. Without it: field and linguistics_term, where rows have them."""
    normalize: bool = False
    """Divide each score by the number of pieces, for sentences of different lengths."""
    save: bool = False
    """Keep the accuracies in the run, as pairs.json, which bert-jax report shows."""

    def execute(self) -> None:
        if self.columns is not None and len(set(self.columns)) != 2:
            raise UsageError(
                f"--columns {' '.join(self.columns)}: two columns are needed, that of the acceptable sentence and that "
                "of the other one"
            )
        from bert_jax.inference.pair_files import pair_files

        files = pair_files(self.pairs)  # before JAX is imported
        local_place(self.run)  # before JAX is imported
        from bert_jax.cli.results_tables import print_pairs
        from bert_jax.inference.minimal_pairs import pair_results
        from bert_jax.run.run_directory import RunDirectory
        from bert_jax.run.run_files import RunFiles
        from bert_jax.system.figures import json_line
        from bert_jax.system.files import write_json
        from bert_jax.system.progress import say

        run = RunFiles(self.run)
        if self.save:
            _ = run.config  # raises if it is no run
        bert = self.loaded(run, self.dtype)
        results = pair_results(bert, files, self.columns, self.groups, self.method, self.normalize)
        for remark in results.remarks:
            say(remark)
        if self.save:
            write_json(RunDirectory(self.run).pairs_file, results.content)
        if self.json:
            print(json_line(results.content))
        else:
            print_pairs(results)


class Score(ScoreArguments):
    """Scores of texts: the sum of the log probabilities of a text's tokens, in nats. It is the pseudo-log-likelihood of
    a model that masks (Salazar et al. 2020), and the log-likelihood of a causal one. For the accuracy on pairs of
    sentences: bert-jax score RUN --pairs FILE (bert-jax score --pairs --help).
    """

    LINE = "bert-jax score"
    VARIANTS = {"--pairs": ScorePairs}

    input: Positional[str]
    """One text on each line: a file, plain, .gz or .zst, or - for standard input. Or a source of a corpus, such as
    jsonl:FILE#FIELD, each of whose lines is a text. With --texts: a .csv, .tsv, .jsonl or .parquet."""
    output: Positional[PlaceArgument | None] = None
    """File to write: .jsonl, with a line for each text. Without it: standard output."""
    texts: str | None = None
    """Column of the input that holds the texts. Without it: each line of the input is a text."""
    tokens: bool = False
    """Write each token with its own log probability, too."""

    def execute(self) -> None:
        local_place(self.run)  # before JAX is imported
        from bert_jax.finetuning.dataset import say_repairs
        from bert_jax.inference.feature_files import name_of
        from bert_jax.inference.scoring import ScoreTotals
        from bert_jax.system.figures import json_line, print_rows
        from bert_jax.system.files import replacing
        from bert_jax.system.progress import say, stage

        repairs = Counter[str]()
        texts = self._texts(repairs)
        bert = self.loaded(self.run, self.dtype)
        method, totals = bert.scorer.method(self.method) or "log-likelihood", ScoreTotals()
        with contextlib.ExitStack() as opened:
            file = sys.stdout
            if self.output:
                file = opened.enter_context(open(opened.enter_context(replacing(self.output)), "w", encoding="utf-8"))
            bar = opened.enter_context(stage("score", None, "texts"))
            for scored in bar.counted(bert.score_stream(texts, self.method)):
                totals.add(scored)
                print(json_line(_row(scored, bert.tokenizer if self.tokens else None)), file=file)
            if not totals.texts:
                raise UsageError(f"{name_of(self.input)} has no text to score; give some")
        say_repairs(name_of(self.input), repairs)
        content = {"method": method, **totals.content}
        figures = [(name.replace("_", " "), _formatted(value)) for name, value in content.items()]
        if self.json:
            print(json_line(content))
        elif self.output:
            print_rows(f"{self.output}", (), figures)
        else:
            say(", ".join(f"{name} {value}" for name, value in figures))

    def _texts(self, repairs: Counter[str]) -> Iterator["Text"]:
        """The texts of the input. Raises UsageError before the first text if the input can't be read, the output
        can't be written, or the output is a file of the input."""
        from bert_jax.config.data import DataConfig
        from bert_jax.inference.feature_files import read_texts
        from bert_jax.records.corpus import open_corpus
        from bert_jax.records.sources import names_source
        from bert_jax.system.files import check_written, matching_files

        read = [self.input]
        if is_source := names_source(self.input):  # KIND:FILES or KIND:FILES#FIELD
            place = self.input.partition(":")[2]
            read += map(str, [*matching_files(place), *matching_files(place.rpartition("#")[0])])
        if self.output:
            for file in read:
                check_written(self.output, file)
            if self.output.suffix != ".jsonl":
                raise UsageError(f"{self.output}: scores are written as JSON lines; name it .jsonl")
        if is_source and self.texts is None:
            documents = open_corpus(DataConfig(source=(self.input,))).documents()
            return (line for document in documents for line in document)
        return read_texts(self.input, (self.texts,) if self.texts else (), repairs)


def _row(scored: "ScoredText", tokenizer: "Tokenizer | None") -> dict[str, Any]:
    """The JSON object to write for a text; with a tokenizer, also each token and its log probability."""
    row: dict[str, Any] = {"text": scored.text, "score": None, "tokens": len(scored.ids), "score_per_token": None}
    if scored.score is not None and scored.logs is not None:
        row["score"] = round(scored.score, _DECIMALS)
        row["score_per_token"] = round(scored.score / len(scored.ids), _DECIMALS)
        if tokenizer:
            row["pieces"] = [tokenizer.spelled(number) for number in scored.ids]
            row["scores"] = [round(log, _DECIMALS) for log in scored.logs.tolist()]
    return row


def _formatted(value: object) -> str:
    return f"{value:,.2f}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
