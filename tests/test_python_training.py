"""Training from Python: texts and rows of a program, a function that receives measurements, the module of a model."""

import datetime
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jax
import numpy as np
import pandas
import pytest
from datasets import Dataset

import bert_jax
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
    """Although it is stopped by the program in between, and continued with the same texts."""
    lines = []

    def stop_at_6(step, split, values):
        lines.append((step, split))
        return np.bool_(step == 6)

    with pytest.raises(bert_jax.Interrupted, match="stopped at step 6 of 12") as kept:  # as a notebook keeps it
        bert_jax.pretrain(tiny_config, tmp_path / "run", source=iter(documents), on_measured=stop_at_6)
    assert lines == [(3, "train"), (6, "train")]
    with pytest.raises(bert_jax.UsageError, match="was begun with other texts or rows than those that are given now"):
        bert_jax.pretrain(tiny_config, tmp_path / "run", source=documents[1:])
    results = bert_jax.pretrain(tiny_config, str(tmp_path / "run"), source=documents, on_measured=lambda *_: None)
    assert results.steps == 12 and kept.tb
    trained, expected = parameters_of(tmp_path / "run"), parameters_of(tiny_run.path)
    assert jax.tree.all(jax.tree.map(np.array_equal, trained, expected))
    written = (tmp_path / "run/data/python-texts.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["text"] for line in written] == documents


@pytest.mark.parametrize("form", [iter, pandas.DataFrame, Dataset.from_list], ids=["rows", "pandas", "datasets"])
@pytest.mark.long
def test_rows_of_a_program_are_learned_from(tiny_run, task, tmp_path, form):
    results = bert_jax.finetune(task, tmp_path / "run", init=tiny_run.path, train=form(ROWS), dev=ROWS[:6])
    assert results.training_rows == 24 and results.dev_rows == 6 and results.task == "python-train.jsonl"
    assert bert_jax.load(tmp_path / "run").predict(["The old cat sees."])[0]["predicted_label"] in ("0", "1")


@pytest.mark.parametrize(
    "rows, message",
    [
        ([("a text", "0")], r"row 1 is \('a text', '0'\); give mappings such as"),
        ([{"text": {1}, "label": "0"}], "row 1 can.t be written as JSON .*set is no value"),
        ([{"text": "a", "label": float("inf")}], "row 1 can't be written as JSON .*Out of range"),
    ],
)
def test_other_rows_are_refused_in_one_line_and_nothing_is_written(tiny_run, task, tmp_path, rows, message):
    with pytest.raises(bert_jax.UsageError, match=message):
        bert_jax.finetune(task, tmp_path / "run", init=tiny_run.path, train=rows)
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [".lock"]


def test_what_is_no_text_is_refused(tiny_config, tmp_path):
    with pytest.raises(bert_jax.UsageError, match="text 2 is 5; give a text"):
        bert_jax.pretrain(tiny_config, tmp_path / "run", source=iter(["one", 5]))


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
    from bert_jax.run.python_input import write_rows

    rows = [{"day": datetime.date(2026, 11, 28), "tags": [np.int64(1), float("nan")], "text": "half \ud800 a pair"}]
    path = Path(write_rows(RunDirectory(tmp_path / "run"), "train", rows))
    before = path.stat()
    assert json.loads(path.read_text()) == {"day": "2026-11-28", "tags": [1, None], "text": "half \ud800 a pair"}
    write_rows(RunDirectory(tmp_path / "run"), "train", iter(rows))
    assert path.stat().st_mtime_ns == before.st_mtime_ns and path.stat().st_ino == before.st_ino


def test_a_missing_number_of_a_data_frame_is_no_number(tmp_path):
    from bert_jax.run.python_input import write_rows

    frame = pandas.DataFrame({"text": ["a", "b"], "score": [1.5, None]})
    path = write_rows(RunDirectory(tmp_path / "run"), "train", frame)
    assert [json.loads(line)["score"] for line in open(path, encoding="utf-8")] == [1.5, None]


def test_the_module_and_the_parameters_of_a_model_can_be_applied(tiny_run):
    bert = bert_jax.load(tiny_run.path)
    tokens = bert.tokens(["The old cat sees.", ("A house", "near the river.")])
    logits, pairs = bert.module.apply({"params": bert.params}, tokens)
    assert logits.shape[:2] == tokens.ids.shape and pairs.shape == (2, 1, 2)
    encoded = bert.module.apply({"params": bert.params}, tokens, method="encode")
    np.testing.assert_allclose(
        encoded.pooled[:, 0], bert.encode(["The old cat sees.", ("A house", "near the river.")]).pooled, atol=1e-5
    )


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
