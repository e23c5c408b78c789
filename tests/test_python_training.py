"""Training from Python: texts and rows of a program, a function that receives measurements, the module of a model."""

import datetime
import json
import signal
import subprocess
import sys
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import numpy as np
import pytest

import bert_jax
from bert_jax.cli.main import run as bert_command
from bert_jax.finetuning import finetune as finetune_module
from bert_jax.finetuning.dataset import read_records, written_as
from bert_jax.run.python_input import write_rows
from bert_jax.run.results import Results
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.trained_model import TrainedModel
from bert_jax.system.bucket import place_of

ROWS = [
    {"text": f"The {'old' if number % 2 else 'green'} cat sees the house near {number}.", "label": number % 2}
    for number in range(24)
]


def parameters_of(path):
    model = TrainedModel.open(place_of(path))
    return jax.device_get(model.read(jax.tree.map(lambda _: None, model.shapes)))


@pytest.fixture(scope="module")
def documents(corpus) -> list[str]:
    return corpus.read_text(encoding="utf-8").split("\n\n")


@pytest.fixture(scope="module")
def task():
    settings = {"epochs": 2.0, "batch_size": 8, "max_length": 16}
    return bert_jax.configs.classes.change(task=settings, logging={"tensorboard": False})


@pytest.mark.long
def test_a_training_on_an_iterable_of_texts_is_that_on_their_file(tiny_config, tiny_run, documents, tmp_path):
    """Although it is stopped by a signal in between, and continued with the same texts."""
    lines = []

    def stop_at_6(step, split, values):
        lines.append((step, split))
        if step == 6:
            signal.raise_signal(signal.SIGTERM)

    with pytest.raises(bert_jax.Interrupted, match="stopped at step 6 of 12") as kept:  # as a notebook keeps it
        bert_jax.pretrain(tiny_config, tmp_path / "run", source=iter(documents), on_measured=stop_at_6)
    assert lines == [(3, "train"), (6, "train")]
    with pytest.raises(bert_jax.UsageError, match="was begun with other texts or rows than those of this call"):
        bert_jax.pretrain(tiny_config, tmp_path / "run", source=documents[1:])
    results = bert_jax.pretrain(tiny_config, str(tmp_path / "run"), source=documents, on_measured=lambda *_: None)
    assert results.steps == 12 and kept.tb
    trained, expected = parameters_of(tmp_path / "run"), parameters_of(tiny_run.path)
    assert jax.tree.all(jax.tree.map(np.array_equal, trained, expected))
    written = (tmp_path / "run/data/python-texts.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["text"] for line in written] == documents


def test_an_end_that_on_measured_wants_is_no_error(tiny_config, untrained, capsys):
    """The run is finished with the results of that step; more steps go on from there as if it had not ended."""
    run = untrained.path

    def good_enough(step, split, values):
        return np.bool_(step == 6 and split == "eval")

    ended = bert_jax.pretrain(tiny_config, run, on_measured=good_enough)
    assert ended.steps == 6 and ended.stopped_early and ended.planned_steps == 12 and ended.mlm_accuracy >= 0
    assert json.loads((run / "results.json").read_text())["stopped_early"]
    assert [json.loads(line)["event"] for line in (run / "events.jsonl").read_text().splitlines()][-1] == "finished"
    assert "training ends at step 6 of 12" in capsys.readouterr().err
    assert bert_jax.pretrain(tiny_config, run, on_measured=good_enough) == ended
    assert "is finished: 6 steps" in capsys.readouterr().err
    assert bert_command(["verify", str(run)]) == 0
    longer = tiny_config.set({"phases.0.steps": 8})
    results = bert_jax.pretrain(longer, run)
    assert results.steps == 8 and not results.stopped_early


def test_a_signal_at_the_end_that_is_wanted_interrupts(tiny_config, untrained):
    def both(step, split, values):
        signal.raise_signal(signal.SIGINT)
        return True

    with pytest.raises(bert_jax.Interrupted, match="stopped at step 3 of 12"):
        bert_jax.pretrain(tiny_config, untrained.path, on_measured=both)


WRONG = {
    "pretrain('demo', run)": "pretrain takes a RunConfig and got 'demo'; give bert_jax.configs['demo']",
    "pretrain(configs.classes, run)": "pretrain takes a RunConfig and got a FinetuneConfig",
    "finetune(configs.demo, run)": "finetune takes a FinetuneConfig and got a RunConfig",
    "pretrain(configs.demo, None)": "None is no path; give one as a text",
    "finetune(configs.classes, 5)": "5 is no path; give one as a text",
    "pretrain(configs.demo, run, source='The cat. ' * 99)": "is too long for a file's name",
    "pretrain(configs.demo, run, source='A\\n\\nB')": r"no file matches 'A\n\nB'",
    "pretrain(configs.demo, run, source=5)": "pretrain takes texts and got 5; give a list",
    "pretrain(configs.demo, run, on_measured=5)": "on_measured=5 is no function",
    "pretrain(configs.demo, run, init=5)": "init=5: expected a text",
    "finetune(configs.classes, run, init=5)": "init=5: expected a text",
    "finetune(configs.classes, run, init=run, train=5)": "finetune takes rows and got 5; give a list",
    "load(None)": "None is no path",
    "load_tokenizer(['a'])": "['a'] is no path",
}


def test_wrong_arguments_are_refused_in_one_line(tmp_path):
    """In a process whose annotations aren't checked."""
    script = (
        "import sys\nfrom bert_jax import *\nrun = sys.argv[1]\n"
        "for call in sys.argv[2:]:\n"
        "    try:\n        eval(call)\n"
        "    except UsageError as error:\n        print(error)\n"
    )
    command = [sys.executable, "-c", script, str(tmp_path / "run"), *WRONG]
    said = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    for line, (call, words) in zip(said, WRONG.items(), strict=True):
        assert words in line, call
    assert not [path for path in tmp_path.rglob("*") if path.suffix]


@pytest.mark.long
def test_rows_of_a_program_are_learned_from(tiny_run, task, tmp_path):
    results = bert_jax.finetune(task, tmp_path / "run", init=tiny_run.path, train=iter(ROWS), dev=ROWS[:6])
    assert results.training_rows == 24 and results.dev_rows == 6 and results.task == "python-train.jsonl"
    assert bert_jax.load(tmp_path / "run").predict(["The old cat sees."])[0]["predicted_label"] in ("0", "1")


def test_settings_of_files_are_those_of_a_dev_file_beside_rows_of_a_program(task, tmp_path, monkeypatch):
    (tmp_path / "dev.txt").write_text("1|A dog.\n0|A cat.\n")
    named = {"format": "csv", "columns": ("label", "text"), "separator": "|", "dev": str(tmp_path / "dev.txt")}
    configs = []
    monkeypatch.setattr(finetune_module, "_fine_tuned", lambda config, *_: configs.append(config.task) or Results())
    bert_jax.finetune(task.change(task=named), tmp_path / "run", train=ROWS)
    [config] = configs
    train, dev = (read_records(config, source, "train", Counter()) for source in (config.train, config.dev))
    assert [row.values["text"] for row in train] == [row["text"] for row in ROWS]
    assert [row.values for row in dev] == [{"label": "1", "text": "A dog."}, {"label": "0", "text": "A cat."}]
    assert written_as(config, config.train).format == "jsonl"


@pytest.mark.parametrize(
    "rows, message",
    [
        ([("a text", "0")], r"row 1 is \('a text', '0'\); give mappings such as"),
        ([{"text": {1}, "label": "0"}], "row 1 can.t be written as JSON .*set is no value"),
        ([{"text": "a", "label": float("inf")}], "row 1 can't be written as JSON .*Out of range.*'label': inf; leave"),
    ],
)
def test_other_rows_are_refused_in_one_line_and_nothing_is_written(tiny_run, task, tmp_path, rows, message):
    with pytest.raises(bert_jax.UsageError, match=message):
        bert_jax.finetune(task, tmp_path / "run", init=tiny_run.path, train=rows)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [".lock"]


def test_a_folder_of_another_program_is_left_alone(tiny_config, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(bert_jax.UsageError, match="is no run and not empty: it holds 'notes.txt'"):
        bert_jax.pretrain(tiny_config, tmp_path, source=["one"])
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_nothing_is_written_through_a_link_or_beside_another_process(tiny_config, tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run/data").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(bert_jax.UsageError, match="data is a link"):
        bert_jax.pretrain(tiny_config, tmp_path / "run", source=["one"])
    (tmp_path / "run/data").unlink()
    other = RunDirectory(tmp_path / "run")
    other.lock()
    with pytest.raises(bert_jax.UsageError, match="another process is working on"):
        bert_jax.pretrain(tiny_config, tmp_path / "run", source=["one"])
    other.close()
    assert not [*tmp_path.rglob("*.jsonl")]


def test_the_same_rows_leave_their_file_alone_and_values_are_those_of_json(tmp_path):
    rows = [{"day": datetime.date(2026, 11, 28), "tags": [np.int64(1), float("nan")], "text": "half \ud800 a pair"}]
    path = Path(write_rows(RunDirectory(tmp_path / "run"), "train", rows))
    before = path.stat()
    assert json.loads(path.read_text()) == {"day": "2026-11-28", "tags": [1, None], "text": "half \ud800 a pair"}
    write_rows(RunDirectory(tmp_path / "run"), "train", iter(rows))
    assert path.stat().st_mtime_ns == before.st_mtime_ns and path.stat().st_ino == before.st_ino


def test_the_module_and_the_parameters_of_a_model_can_be_applied(tiny_run):
    bert = bert_jax.load(tiny_run.path)
    texts = ["The old cat sees.", ("A house", "near the river.")]
    tokens = bert.tokens(texts)
    logits, pairs = bert.module.apply({"params": bert.params}, tokens)
    assert logits.shape[:2] == tokens.ids.shape and pairs.shape == (2, 1, 2)
    encoded = bert.module.apply({"params": bert.params}, tokens, method="encode")
    np.testing.assert_allclose(encoded.pooled[:, 0], bert.encode(texts).pooled, atol=1e-5)


def test_the_tokens_of_a_mask_are_a_mask(tiny_run):
    bert = bert_jax.load(tiny_run.path)
    ids = bert.tokenizer.vocabulary
    tokens = bert.tokens(["The old [MASK] sees.", ("The [SEP] cat", "[MASK]")])
    first, second = ([number for number in row if number != ids.pad_id] for row in np.asarray(tokens.ids).tolist())
    the, old, sees = (bert.tokenizer.encode(text) for text in ("The", "old", "sees."))
    assert first == [ids.cls_id, *the, *old, ids.mask_id, *sees, ids.sep_id]
    assert second.count(ids.sep_id) == 3 and second[-2] == ids.mask_id
    logits, _ = bert.module.apply({"params": bert.params}, tokens)
    place = first.index(ids.mask_id)
    (best, probability), *_ = bert.fill_mask("The old [MASK] sees.", top=1)[0]
    spread = jax.nn.softmax(logits[0, place, : len(ids)])
    assert ids.pieces[int(spread.argmax())] == best and float(spread.max()) == pytest.approx(probability, abs=1e-5)
    letters = np.asarray(bert.tokens(["The old [MASK] sees."], special=False).ids)
    assert ids.mask_id not in letters and letters.shape[1] > len(first)


def test_parameters_of_another_number_of_layers_are_refused(tiny_run):
    bert = bert_jax.load(tiny_run.path)
    bert.config = bert.config.replace(num_layers=1)
    with pytest.raises(ValueError, match="the parameters have 2 layers, and the model has 1"):
        bert.module.apply({"params": bert.params}, bert.tokens(["The old cat sees."]))


def test_a_thread_may_train(tiny_config, tmp_path):
    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(bert_jax.pretrain, tiny_config, tmp_path / "run").result().steps == 12


def test_configs_are_found_by_name():
    assert bert_jax.configs.demo.model.num_layers == 2
    assert bert_jax.configs["experiments/modern"].phases and "classes" in dir(bert_jax.configs)
    with pytest.raises(AttributeError, match="no config is called 'dmo'"):
        _ = bert_jax.configs.dmo
