"""Suites whose processes are stand-ins: which calls are made, in which order, and what is made of their results."""

import hashlib
import json
from pathlib import Path
from types import SimpleNamespace
from typing import NamedTuple

import pytest

from bert_jax.config.settings import Settings
from bert_jax.finetuning.finetune import finetune
from bert_jax.pretraining.pretrain import pretrain
from bert_jax.products.suite import job, measuring
from bert_jax.products.suite.processes import Processes
from bert_jax.products.suite.suite_file import read_suite
from bert_jax.products.suite.summary import Summary
from bert_jax.products.suite.tasks import rows_in_text
from bert_jax.products.suite.work import SuiteWork

STEP_SECONDS = {"full_sentences": 0.05, "bert": 0.05, "masked": 0.05, "modern_muon": 0.1, "left": 0.2}


class Call(NamedTuple):
    """A training, or a task's own measurement."""

    name: str
    """The function, or the kind of the task."""
    path: Path
    """The run that is made, or the model that is measured."""
    config: Settings
    """The settings of the training, or the task."""

    @property
    def steps(self) -> list[int]:
        """Those of each phase."""
        return [phase.steps for phase in self.config.phases]


class StandIns:
    """A suite in a folder, with stand-ins for what is done in other processes."""

    def __init__(self, folder: Path, monkeypatch):
        self.folder, self.given, self.measured, self.answered = folder, [], [], []
        self.timed = {}
        """The configs of recipes whose steps were measured together, by name."""
        self.token_times = measuring.TokenTimes(forward=0.0, pretraining=0.0, measurement=0.0)
        """Those of every model."""
        self.outcomes = {}
        """Outcomes of minimal pairs by the model's name."""
        self.lacking = {}
        """What models lack for tasks, as if they had been opened."""
        self.unread = None
        """Why a part of the models' texts isn't looked through."""
        self.before = lambda call: None
        """What is done before each call, which it may raise an error in place of."""
        for name in ("train.tsv", "dev.tsv", "test.tsv"):
            (folder / name).write_text("sentence\tlabel\ngood\t1\nbad\t0\n")
        (folder / "pairs.jsonl").touch()
        for name in ("one", "two", "three", "four"):
            (folder / name).mkdir()
        monkeypatch.chdir(folder)
        monkeypatch.setattr(Processes, "call", lambda processes, *call, log=None: self.alone(*call))
        monkeypatch.setattr(job, "time", SimpleNamespace(monotonic=lambda: 0.0))  # the same seconds on a busy machine

    def alone(self, function, *arguments):
        if function is measuring.step_seconds:
            self.measured += arguments[0]
            self.timed = arguments[0]
            return {name: STEP_SECONDS[name] for name in arguments[0]}
        if function is measuring.token_times:
            return self.token_times
        if function is measuring.step_flops:
            return 1e6
        if function is measuring.held_out_figures:
            run, sequences, _, *whole = arguments
            self.measured.append((run.name, sequences))
            accuracies = {f"{question}_accuracy": 0.5 for question in ("mlm", "lm", "plm", "bilm", "rtd")}
            return accuracies | ({"bits_per_character": 1.5, "unknown_share": 0.0} if whole else {})
        if function is measuring.row_answers:
            self.answered.append(arguments)
            right = [0, 1] * 50
            given = [answer ^ (score_of(f"{arguments[0].name} {row}") < 0.3) for row, answer in enumerate(right)]
            measured = {"metric": "accuracy", "accuracy": 0.7, "baseline": {"accuracy": 0.9}}
            return measured | {"golds": right, "predicted": given}
        if function is rows_in_text:
            return {task.name: {"share": 0.25, "unknown": self.unread, "tokens": 9} for task in arguments[1]}
        if function in (finetune, pretrain, measuring.prepare_sequences):
            config, path = arguments
            return self.called(Call(function.__name__.partition("_")[0], path, config))
        (path,) = arguments
        assert function == function.__self__.measure
        return self.called(Call(function.__self__.KEY, path, function.__self__))

    def called(self, call):
        """Does what a call leaves behind."""
        self.before(call)
        self.given.append(call)
        if call.name == "pairs":
            outcomes = {"some": self.outcomes.get(call.path.name, "1101010110")}
            right = outcomes["some"].count("1") / len(outcomes["some"])
            return {"accuracy": right, "outcomes": outcomes, "baseline": {"accuracy": 0.5}}
        if call.name == "beir":
            return {"ndcg@10": 0.4}
        directory = call.path
        if call.name == "prepare":
            (directory / "data" / "length-64").mkdir(parents=True, exist_ok=True)
            (directory / "data" / "length-64" / "prepared.json").touch()
            (directory / "tokenizer").mkdir(exist_ok=True)
            of_kind = "tokenizer.model" if call.config.vocabulary.kind == "unigram" else "vocab.txt"
            (directory / "tokenizer" / of_kind).touch()
            return {}
        directory.mkdir(parents=True, exist_ok=True)
        losses = enumerate((7.0, None, 5.9, 5.0), start=1)  # null: it was not finite
        lines = [
            json.dumps({"step": 100 * n, "split": "train", "loss": loss, "mlm_loss": loss}) + "\n" for n, loss in losses
        ]
        (directory / "metrics.jsonl").write_text("".join(lines))
        (directory / "checkpoints").mkdir(exist_ok=True)
        settings = call.config.model_dump_json()
        (directory / "config.json").write_text(settings)
        steps = sum(call.steps) if call.name == "pretrain" else 10
        score = score_of(settings.replace(str(self.folder), ""))
        result = {"steps": steps, "metric": "accuracy", "accuracy": score, "score": score, "f1": 0.5}
        (directory / "results.json").write_text(json.dumps(result))
        return {}

    def judged(self, name, split="test"):
        """Makes a folder with the files of judged texts."""
        for file in ("corpus.jsonl", "queries.jsonl", f"qrels/{split}.tsv"):
            path = self.folder / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()

    def suite(self, text, **changes):
        """The suite of a TOML file with this text."""
        (self.folder / "suite.toml").write_text(text)
        return read_suite(self.folder / "suite.toml", **changes)._replace(lacking=self.lacking)

    def run(self, text, workdir="W", at_once=1, **changes) -> Summary:
        """Its summary when all is done."""
        return self.carried_out(self.suite(text, **changes), workdir, at_once)

    def carried_out(self, suite, workdir="W", at_once=1) -> Summary:
        """A suite's summary when all is done."""
        work = SuiteWork(suite, self.folder / workdir, at_once)
        work.run(lambda: Summary(work))
        return Summary(work)


def score_of(text: str) -> float:
    """A score from 0 to 1 that depends on `text` alone."""
    return int(hashlib.sha256(text.encode()).hexdigest()[:6], 16) / 16**6


@pytest.fixture
def stand_ins(tmp_path, monkeypatch) -> StandIns:
    return StandIns(tmp_path, monkeypatch)
