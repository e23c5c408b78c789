"""Fine-tuned models as they are written for transformers, which test_transformers.py has read them."""

import json
import os

import numpy as np
import pytest
from safetensors.numpy import load_file

import bert_jax
from bert_jax.cli.main import run
from bert_jax.config.finetune import FinetuneConfig
from bert_jax.interchange.export import write_model_directory
from bert_jax.run.checkpoint import write_model
from bert_jax.run.run_config import write_config
from bert_jax.run.run_directory import RunDirectory

HEADS = {
    "class": ("BertForSequenceClassification", "classifier", 3),
    "labels": ("BertForSequenceClassification", "classifier", 3),
    "number": ("BertForSequenceClassification", "classifier", 1),
    "tags": ("BertForTokenClassification", "classifier", 4),
    "choice": ("BertForMultipleChoice", "classifier", 1),
    "span": ("BertForQuestionAnswering", "qa_outputs", 2),
}
"""By the kind of task: the class, and its head's name and outputs."""
SAID = {
    "class": {
        "id2label": {"0": "bad", "1": "so so", "2": "good"},
        "label2id": {"bad": 0, "so so": 1, "good": 2},
        "problem_type": "single_label_classification",
    },
    "labels": {
        "id2label": {"0": "bad", "1": "so so", "2": "good"},
        "label2id": {"bad": 0, "so so": 1, "good": 2},
        "problem_type": "multi_label_classification",
    },
    "number": {"id2label": {"0": "LABEL_0"}, "label2id": {"LABEL_0": 0}, "problem_type": "regression"},
    "tags": {
        "id2label": {"0": "B-X", "1": "I-X", "2": "O", "3": "B-Y"},
        "label2id": {"B-X": 0, "I-X": 1, "O": 2, "B-Y": 3},
    },
    "choice": {},
    "span": {},
}


def write_run(model, path) -> None:
    """A fine-tuned run of one checkpoint, at step 0."""
    place = RunDirectory(path)
    place.path.mkdir()
    write_config(place.config_file, FinetuneConfig(task=model.task).planned(model.config, model.task, "", 1))
    model.tokenizer.save(place.tokenizer)
    write_model(place.checkpoints, model.params, (place.config_file, place.tokenizer))


@pytest.mark.parametrize("kind", HEADS)
def test_a_fine_tuned_model_is_of_the_class_with_its_head_and_labels(fine_tuned, kind, tmp_path):
    model, (name, head, outputs) = fine_tuned(kind), HEADS[kind]
    assert write_model_directory(tmp_path / "model", *model[1:], model.task) == name
    tensors = load_file(tmp_path / "model" / "model.safetensors")
    assert {key: value.shape for key, value in tensors.items() if not key.startswith("bert.")} == {
        f"{head}.weight": (outputs, 16),
        f"{head}.bias": (outputs,),
    }
    np.testing.assert_array_equal(tensors[f"{head}.weight"], model.params["task"]["dense"]["kernel"].T)
    pooler = [key for key in tensors if "pooler" in key]
    assert sorted(pooler) == (
        [] if kind in ("tags", "span") else ["bert.pooler.dense.bias", "bert.pooler.dense.weight"]
    )
    assert len(tensors) == 5 + 16 * 2 + len(pooler) + 2
    said = json.loads((tmp_path / "model" / "config.json").read_text())
    assert said["architectures"] == [name]
    assert {key: said.get(key) for key in ("id2label", "label2id", "problem_type") if key in said} == SAID[kind]
    params = bert_jax.load(tmp_path / "model").params["bert"]
    assert params.keys() == model.params["bert"].keys()
    kernel = params["encoder"]["layers"]["attention"]["kernel"]
    np.testing.assert_array_equal(kernel, model.params["bert"]["encoder"]["layers"]["attention"]["kernel"])


def test_the_command_exports_a_fine_tuned_run(fine_tuned, tmp_path, capsys):
    write_run(fine_tuned("span"), tmp_path / "run")
    assert run(["export", str(tmp_path / "run"), str(tmp_path / "model")]) == 0
    assert "exported a BertForQuestionAnswering to" in capsys.readouterr().err
    assert "qa_outputs.bias" in load_file(tmp_path / "model" / "model.safetensors")


def test_a_head_of_no_class_is_one_line_and_leaves_nothing(fine_tuned, tmp_path, capsys):
    write_run(fine_tuned("marked"), tmp_path / "run")
    assert run(["export", str(tmp_path / "run"), str(tmp_path / "model")]) == 2
    told = capsys.readouterr().err.replace("\n", " ")
    assert "transformers has no class with the head of task film (task.kind=marked); use the run itself" in told
    assert not (tmp_path / "model").exists()


def test_every_file_has_the_mode_that_the_umask_gives(fine_tuned, tmp_path):
    model, before = fine_tuned("class"), os.umask(0o027)
    try:
        write_model_directory(tmp_path / "model", *model[1:], model.task)
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "model").iterdir()} == {0o640}
