"""A suite believes only what is as it was written, and measures again what rests on other contents."""

import itertools
import json
import os
import random
import re
import shutil
import time
from pathlib import Path

import pytest
from damages import HOSTILE, damaged, flip_a_bit
from suite_cases import TASK_TEXT

from bert_jax.config.settings import Settings
from bert_jax.products.suite.job import KeptFigures, all_settings, place_below
from bert_jax.products.suite.summary import Summary
from bert_jax.products.suite.work import SuiteWork
from bert_jax.system.errors import RunError

DAMAGES_WHEN_SLOW = 200

FILES = {
    "one/config.json": '{"model_type": "bert"}',
    "one/model.safetensors": "0123456789",
    "one/tokenizer.json": '{"model": {}}',
    "two/config.json": '{"schema_version": 1}',
    "two/tokenizer/vocab.txt": "[PAD]\n[UNK]\nword\n",
    "two/checkpoints/00001000/manifest.json": '{"step": 1000}',
    "two/checkpoints/00001000/d/0": "0123456789",
    "pairs.jsonl": '{"sentence_good": "a", "sentence_bad": "b"}\n',
    "scifact/corpus.jsonl": '{"_id": "d1", "text": "a text"}\n',
    "scifact/queries.jsonl": '{"_id": "q1", "text": "a query"}\n',
    "scifact/qrels/test.tsv": "query-id\tcorpus-id\tscore\nq1\td1\t1\n",
    "zh.tsv": "sentence\tlabel\nhao\t1\n",
    "corpus.txt": "Some text that a recipe learns from.\n",
    "lexicon.txt": "Some text\n",
    "vocab.txt": "[PAD]\n[UNK]\nword\n",
}
TRAINED = f"""
models = ["one", "two"]
report = "test"
{TASK_TEXT}
test = "test.tsv"
other_dev = ["zh=zh.tsv"]
[[tasks]]
pairs = "pairs.jsonl"
[[tasks]]
beir = "scifact"
[grid]
"optimizer.peak-learning-rate" = [1e-4, 3e-4]
"""
RECIPES = f"""
source = "text:corpus.txt"
[budget]
seconds = 60
[[models]]
config = "experiments/full_sentences"
[[models]]
config = "experiments/modern_muon"
{TASK_TEXT}
"""
CHECKPOINT = TRAINED.replace('"two"]', '"two/checkpoints/00001000"]')
LEARNING = RECIPES.replace(
    'full_sentences"', 'full_sentences"\nset = {"vocabulary.file" = "vocab.txt", "data.phrases" = "lexicon.txt"}'
)
ALL = {"finetune": 4, "pairs": 2, "beir": 2, "answers": 2}
ROWS = {"finetune": 4, "answers": 2}
OF_ONE = {"finetune": 2, "pairs": 1, "beir": 1, "answers": 1}
OF_RECIPES = {"prepare": 1, "pretrain": 2, "finetune": 2, "answers": 2}


@pytest.fixture
def suite(stand_ins):
    """Stand-ins with all files of both suites."""
    for name, text in FILES.items():
        path = stand_ins.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return stand_ins


def work_done(suite, text) -> dict[str, int]:
    """How often the suite makes each call, and measures answers."""
    suite.given.clear()
    suite.answered.clear()
    suite.run(text)
    names = [call.name for call in suite.given] + ["answers"] * len(suite.answered)
    return {name: names.count(name) for name in dict.fromkeys(names)}


def change_a_byte(path: Path) -> None:
    """In the middle; size and time of the last change stay."""
    before = path.stat()
    flip_a_bit(path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize(
    "text, file, again",
    [
        *((TRAINED, f"one/{name}", OF_ONE) for name in ("config.json", "model.safetensors", "tokenizer.json")),
        *((text, name, OF_ONE) for text in (TRAINED, CHECKPOINT) for name in FILES if name.startswith("two/")),
        *((TRAINED, name, ROWS) for name in ("train.tsv", "dev.tsv", "test.tsv", "zh.tsv")),
        (TRAINED, "pairs.jsonl", {"pairs": 2}),
        *((TRAINED, name, {"beir": 2}) for name in FILES if name.startswith("scifact/")),
        (TRAINED, "corpus.txt", {}),
        *((LEARNING, name, OF_RECIPES) for name in ("corpus.txt", "lexicon.txt", "vocab.txt")),
    ],
    ids=lambda value: (
        {TRAINED: "trained", CHECKPOINT: "checkpoint", LEARNING: "recipes"}.get(value, value)
        if isinstance(value, str)
        else ""
    ),
)
def test_one_byte_of_anything_that_a_score_rests_on_has_it_measured_again(suite, text, file, again):
    assert work_done(suite, text) == (OF_RECIPES if text == LEARNING else ALL) and work_done(suite, text) == {}
    if text == CHECKPOINT:
        (suite.folder / "two/checkpoints/00002000").mkdir()  # the training goes on
        assert work_done(suite, text) == {}
    change_a_byte(suite.folder / file)
    assert work_done(suite, text) == again and work_done(suite, text) == {}


@pytest.mark.parametrize("name", ["scifact/qrels", "two/checkpoints/00001000/d", "one"])
def test_folders_that_are_links_count(suite, name):
    (suite.folder / name).rename(suite.folder / "elsewhere")
    (suite.folder / name).symlink_to(suite.folder / "elsewhere")
    (suite.folder / "elsewhere" / "loop").symlink_to(suite.folder)
    assert work_done(suite, TRAINED) == ALL and work_done(suite, TRAINED) == {}
    change_a_byte(next(path for path in sorted((suite.folder / "elsewhere").iterdir()) if not path.is_dir()))
    again = {"beir": 2} if name == "scifact/qrels" else OF_ONE
    assert work_done(suite, TRAINED) == again and work_done(suite, TRAINED) == {}


@pytest.mark.parametrize("file", ["dev.tsv", "pairs.jsonl", "one/model.safetensors"])
def test_what_changes_while_the_suite_is_at_work_is_told(suite, file):
    def changing(call):
        if len(suite.given) == 2:
            change_a_byte(suite.folder / file)

    suite.before = changing
    with pytest.raises(RunError, match="changed while the suite was at work, .*; give the same command again"):
        suite.run(TRAINED)
    suite.before = lambda call: None
    assert suite.run(TRAINED).table()


def test_times_and_other_files_of_a_run_have_nothing_measured_again(suite):
    assert work_done(suite, TRAINED) == ALL
    for name in FILES:
        os.utime(suite.folder / name, (1, 1))
    (suite.folder / "two/metrics.jsonl").write_text("{}\n")
    (suite.folder / "two/report.html").write_text("page")
    assert work_done(suite, TRAINED) == {}


def figures(suite, text):
    """What is published of a suite whose work is done, without the runs' places."""
    content = suite.run(text).content
    return re.sub(r"-[0-9a-f]{16}", "", json.dumps(content)).replace(str(suite.folder), "")


def kept_files(workdir: Path) -> list[Path]:
    """All files that a suite keeps but the logs of runs."""
    files = (path for path in sorted(workdir.rglob("*")) if path.is_file() and path.name != "origin.json")
    return [path for path in files if path.name not in (".lock", "metrics.jsonl") and "damaged-" not in str(path)]


def edit_a_number(path: Path, rng: random.Random) -> None:
    """Puts 0.99 in the place of a number."""
    text = path.read_text(errors="replace")
    numbers = [*re.finditer(r"-?\d+(\.\d+)?", text)]
    found = rng.choice(numbers) if numbers else None
    path.write_text(f"{text[: found.start()]}0.99{text[found.end() :]}" if found else f"{text}0.99")


def swap(path: Path, rng: random.Random) -> None:
    """Exchanges a file, or the directory of a run, with another of its kind."""
    this = path.parent if path.parent.parent.name in ("runs", "models", "data") else path
    others = [each for each in this.parent.iterdir() if each != this and each.is_dir() == this.is_dir()]
    if not others:
        return path.unlink()
    other, aside = rng.choice(others), this.with_name("aside")
    this.rename(aside)
    other.rename(this)
    aside.rename(other)


def put_in_place(make):
    def damage(path: Path, rng: random.Random) -> None:
        path.unlink()
        make(path)

    return damage


DAMAGES = {
    "bytes": lambda path, rng: path.write_bytes(damaged(path.read_bytes(), rng)),
    "hostile": lambda path, rng: path.write_bytes(rng.choice(HOSTILE)),
    "number": edit_a_number,
    "spaces": lambda path, rng: path.write_text(path.read_text(errors="replace") + " "),
    "swapped": swap,
    "deleted": lambda path, rng: path.unlink(),
    "link": put_in_place(lambda path: path.symlink_to("/dev/zero")),
    "loop": put_in_place(lambda path: path.symlink_to(path.name)),
    "pipe": put_in_place(os.mkfifo),
    "folder": put_in_place(Path.mkdir),
}


@pytest.mark.parametrize("text", [TRAINED, RECIPES], ids=["trained", "recipes"])
def test_nothing_that_was_damaged_is_believed(suite, slow, text, capsys):
    expected, rng, said = figures(suite, text), random.Random(0), 0
    good = suite.folder / "good"
    shutil.copytree(suite.folder / "W", good)
    count = DAMAGES_WHEN_SLOW if slow else 2 * len(DAMAGES)
    for number in range(count):
        kind = [*DAMAGES][number % len(DAMAGES)]
        path = rng.choice(kept_files(suite.folder / "W"))
        DAMAGES[kind](path, rng)
        capsys.readouterr()
        assert figures(suite, text) == expected, (kind, path)
        said += "the job is done again, and what was there is now damaged-" in "".join(
            capsys.readouterr().err.split("\n")
        )
        shutil.rmtree(suite.folder / "W")
        shutil.copytree(good, suite.folder / "W")
    print(f"damages: {count} of {', '.join(DAMAGES)}: 0 believed, {said} told")
    assert said > count / 2


def test_what_is_measured_again_is_told_in_one_line_and_set_aside(suite, capsys):
    expected = figures(suite, TRAINED)
    (score, _) = sorted((suite.folder / "W/scores").glob("*pairs*"))
    score.write_text(score.read_text().replace("0.6", "0.99", 1))
    results = next((suite.folder / "W/runs").iterdir()) / "results.json"
    results.write_text(re.sub('"score": [0-9.]+', '"score": 0.99', results.read_text()))
    capsys.readouterr()
    assert figures(suite, TRAINED) == expected
    said = " ".join(capsys.readouterr().err.split())
    assert f"{score}: its checksum is missing or another; the job is done again" in said
    assert f"{results.parent}: results.json is not as it was written; the job is done again" in said
    assert '"accuracy": 0.99' in (score.parent / f"damaged-{score.name}").read_text()
    assert '"score": 0.99' in (results.parent.parent / f"damaged-{results.parent.name}" / "results.json").read_text()
    assert figures(suite, TRAINED) == expected and "again" not in capsys.readouterr().err


def test_a_dry_run_changes_nothing_and_lists_what_was_damaged(suite):
    suite.run(TRAINED)
    score = next((suite.folder / "W/scores").iterdir())
    score.write_text("{}")
    before = {path: path.read_bytes() for path in kept_files(suite.folder / "W")}
    work = SuiteWork(suite.suite(TRAINED), suite.folder / "W", 1)
    missing = [job.path for job in work.measurements() if not job.done]
    assert missing == [score]
    Summary(work)
    assert {path: path.read_bytes() for path in kept_files(suite.folder / "W")} == before


def test_a_run_under_another_default_is_another_run(tmp_path):
    """A later release may change a default; what was trained under the old one isn't taken for the other."""

    class Before(Settings):
        bias_correction: bool = False

    class After(Settings):
        bias_correction: bool = True

    paths = {place_below(tmp_path, "runs", "m", all_settings(config())) for config in (Before, After)}
    assert len(paths) == 2


def test_figures_of_another_release_are_measured_again(suite, monkeypatch, capsys):
    with monkeypatch.context() as other:
        other.setattr(KeptFigures, "FORMAT", 2)
        expected = figures(suite, TRAINED)
    capsys.readouterr()
    assert work_done(suite, TRAINED) == ALL
    assert "has format 2 and this release of bert_jax reads format 1" in " ".join(capsys.readouterr().err.split())
    assert figures(suite, TRAINED) == expected


@pytest.mark.long
def test_answers_to_many_rows_are_read_back(suite, monkeypatch):
    alone = suite.alone
    rows = list(itertools.islice(itertools.cycle([0, 1]), 300_000))
    monkeypatch.setattr(
        suite,
        "alone",
        lambda function, *arguments: (
            alone(function, *arguments)
            | ({"golds": rows, "predicted": rows} if function.__name__ == "row_answers" else {})
        ),
    )
    began = time.monotonic()
    work = SuiteWork(suite.suite(TRAINED), suite.folder / "W", 1)
    work.run(lambda: None)
    assert not work.failures and time.monotonic() - began < 60


def test_checkpoints_that_another_setting_needs_again_are_trained_again(suite):
    expected = figures(suite, TRAINED)
    shutil.rmtree(suite.folder / "W/answers")
    for run in (suite.folder / "W/runs").iterdir():
        shutil.rmtree(run / "checkpoints", ignore_errors=True)
    assert work_done(suite, TRAINED) == {"finetune": 2, "answers": 2}
    assert figures(suite, TRAINED) == expected


@pytest.mark.parametrize("text", [TRAINED, RECIPES], ids=["trained", "recipes"])
def test_a_suite_stopped_at_the_writing_of_each_of_its_files_ends_as_an_undisturbed_one(suite, text, monkeypatch):
    """Nothing that was written is done again."""
    expected, write, stops = figures(suite, text), KeptFigures.write, []
    shutil.rmtree(suite.folder / "W")
    once = len(suite.given) + len(suite.answered)

    def stopped(self, path):
        stops.append(path.parent.name)
        if len(stops) % 3 == 1:
            path.with_name(f".{path.name}.0123456789abcdef.tmp").write_text('{"format": 1')
            raise KeyboardInterrupt
        write(self, path)
        if len(stops) % 3 == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(KeptFigures, "write", stopped)
    for _ in range(100):
        try:
            suite.run(text)
            break
        except KeyboardInterrupt:
            pass
    assert {"finished", "answers", "contamination"} <= {*stops} and len(stops) > 15
    unwritten = [kind for kind in stops[::3] if kind in ("finished", "answers", "scores")]
    assert len(suite.given) + len(suite.answered) == 2 * once + len(unwritten)
    monkeypatch.setattr(KeptFigures, "write", write)
    assert figures(suite, text) == expected
