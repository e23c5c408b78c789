"""Suites whose commands are stand-ins: which commands are given, in which order, and what is made of their results."""

import hashlib
import json
from pathlib import Path

import pytest

from bert_jax.cli.suite import settings_of
from bert_jax.products.suite import measuring, recipes, suite_file, work
from bert_jax.products.suite.commands import Commands
from bert_jax.products.suite.suite_file import read_suite
from bert_jax.products.suite.summary import Summary
from bert_jax.products.suite.work import SuiteWork

STEP_SECONDS = {"full_sentences": 0.05, "bert": 0.05, "masked": 0.05, "modern_muon": 0.1, "left": 0.2}


class StandIns:
    """A suite in a folder, with stand-ins for the commands of bert-jax and for what is measured in other processes."""

    def __init__(self, folder: Path, monkeypatch):
        self.folder, self.given, self.measured, self.answered = folder, [], [], []
        self.timed = {}
        """The configs of recipes whose steps were measured together, by name."""
        self.outcomes = {}
        """Outcomes of minimal pairs by the model's name."""
        self.patience = None
        """Commands that are carried out before one is interrupted; None: all."""
        for name in ("train.tsv", "dev.tsv", "test.tsv"):
            (folder / name).write_text("sentence\tlabel\ngood\t1\nbad\t0\n")
        for name in ("one", "two"):
            (folder / name).mkdir()
        monkeypatch.chdir(folder)
        monkeypatch.setattr(Commands, "run", lambda commands, *words: self.command(*map(str, words)))
        for module in (work, recipes):
            monkeypatch.setattr(module, "in_own_process", self.alone)
        monkeypatch.setattr(suite_file, "lacking_heads", lambda models, tasks: {})

    def alone(self, function, *arguments):
        if function is measuring.step_seconds:
            self.measured += arguments[0]
            self.timed = arguments[0]
            return {name: STEP_SECONDS[name] for name in arguments[0]}
        if function is measuring.step_flops:
            return 1e6
        if function is measuring.held_out_figures:
            run, sequences, units = arguments
            self.measured.append((run.name, sequences))
            return {f"{question}_accuracy": 0.5 for question in ("mlm", "lm", "plm", "bilm", "rtd")}
        if function is measuring.row_answers:
            self.answered.append(arguments)
            right = [0, 1] * 50
            given = [answer ^ (score_of(f"{arguments[0].name} {row}") < 0.3) for row, answer in enumerate(right)]
            return {
                "metric": "accuracy",
                "accuracy": 0.7,
                "baseline": {"accuracy": 0.9},
                "golds": right,
                "predicted": given,
            }
        assert function is measuring.rows_in_text
        return {task.name: {"share": 0.25} for task in arguments[1]}

    def command(self, name, *words):
        if self.patience == 0:
            raise KeyboardInterrupt
        self.patience = self.patience and self.patience - 1
        self.given.append((name, *words))
        if name == "score":
            outcomes = {"some": self.outcomes.get(Path(words[0]).name, "1101010110")}
            return json.dumps({"accuracy": 0.6, "outcomes": outcomes, "baseline": {"accuracy": 0.5}})
        if name == "evaluate":
            return json.dumps({"ndcg@10": 0.4})
        directory = Path(words[words.index("--workdir") + 1])
        if name == "prepare":
            (directory / "data" / "length-64").mkdir(parents=True, exist_ok=True)
            (directory / "data" / "length-64" / "prepared.json").touch()
            (directory / "tokenizer").mkdir(exist_ok=True)
            of_kind = "tokenizer.model" if "--vocabulary.kind=unigram" in words else "vocab.txt"
            (directory / "tokenizer" / of_kind).touch()
            return ""
        directory.mkdir(parents=True, exist_ok=True)
        losses = enumerate((7.0, 6.1, 5.9, 5.0), start=1)
        lines = [
            json.dumps({"step": 100 * n, "split": "train", "loss": loss, "mlm_loss": loss}) + "\n" for n, loss in losses
        ]
        (directory / "metrics.jsonl").write_text("".join(lines))
        (directory / "checkpoints").mkdir(exist_ok=True)
        (directory / "config.json").write_text(" ".join(words))
        steps = sum(int(words[at + 1]) for at, word in enumerate(words) if word.endswith(".steps"))
        asked = " ".join(word for word in words if str(self.folder) not in word)
        result = {"steps": steps, "metric": "accuracy", "accuracy": score_of(asked), "score": score_of(asked)}
        (directory / "results.json").write_text(json.dumps(result | {"f1": 0.5}))
        return ""

    def judged(self, name, split="test"):
        """Makes a folder with the files of judged texts."""
        for file in ("corpus.jsonl", "queries.jsonl", f"qrels/{split}.tsv"):
            path = self.folder / name / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()

    def suite(self, text, **changes):
        """The suite of a TOML file with this text."""
        (self.folder / "suite.toml").write_text(text)
        return read_suite(self.folder / "suite.toml", settings_of, **changes)

    def run(self, text, workdir="W", at_once=1, **changes) -> Summary:
        """Its summary when all is done."""
        work = SuiteWork(self.suite(text, **changes), self.folder / workdir, at_once)
        work.run(lambda: Summary(work))
        return Summary(work)


def score_of(text: str) -> float:
    """A score from 0 to 1 that depends on `text` alone."""
    return int(hashlib.sha256(text.encode()).hexdigest()[:6], 16) / 16**6


@pytest.fixture
def stand_ins(tmp_path, monkeypatch) -> StandIns:
    return StandIns(tmp_path, monkeypatch)
