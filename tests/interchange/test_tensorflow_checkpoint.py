import os
import pickle
import re
import sys
from pathlib import Path

import numpy as np
import pytest

from bert_jax.interchange import tensorflow_checkpoint
from bert_jax.interchange.tensorflow_checkpoint import find_tensorflow_checkpoint, read_tensorflow_checkpoint
from bert_jax.interchange.tensors import read_safetensors
from bert_jax.system.errors import UsageError

GOLDEN = Path(__file__).parents[1] / "golden" / "gelu_erf"


def googles_name(name: str) -> str:
    """What Google's code calls the tensor that transformers call `name`."""
    name = name.replace(".", "/").replace("/layer/", "/layer_")
    if name.startswith("cls/seq_relationship/"):
        return name.replace("/weight", "/output_weights").replace("/bias", "/output_bias")
    if name == "cls/predictions/bias":
        return "cls/predictions/output_bias"
    if "LayerNorm" in name:
        return name.replace("/weight", "/gamma").replace("/bias", "/beta")
    return re.sub(r"_embeddings/weight$", "_embeddings", name).replace("/weight", "/kernel")


STAND_IN = """
import os
import pickle
from types import SimpleNamespace


def load_checkpoint(prefix):
    with open(prefix + ".index", "rb") as file:
        tensors = pickle.load(file)
    if tensors == "abort":
        os.abort()
    return Reader(tensors)


class Reader:
    def __init__(self, tensors):
        self.tensors = tensors

    def get_variable_to_shape_map(self):
        return {name: list(tensor.shape) for name, tensor in self.tensors.items()}

    def get_variable_to_dtype_map(self):
        return {name: SimpleNamespace(size=tensor.itemsize) for name, tensor in self.tensors.items()}

    def get_tensor(self, name):
        return self.tensors[name]
"""
"""TensorFlow's reader of checkpoints, over a pickle of our own. It ends its process as TensorFlow's does."""


@pytest.fixture
def tensorflow(tmp_path, monkeypatch):
    """Has the processes that are started take the stand-in for TensorFlow; writes checkpoints that it can read."""
    package = tmp_path / "packages" / "tensorflow"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "train.py").write_text(STAND_IN)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(package.parent), *sys.path]))
    monkeypatch.syspath_prepend(package.parent)
    prefix = tmp_path / "bert_model.ckpt"

    def write(tensors, data_bytes: int) -> Path:
        prefix.with_suffix(".ckpt.index").write_bytes(pickle.dumps(tensors))
        prefix.with_suffix(".ckpt.data-00000-of-00001").write_bytes(bytes(data_bytes))
        return prefix

    return write


def googles_tensors() -> dict[str, np.ndarray]:
    """The golden model under Google's names, with the optimizer's slots."""
    tensors = {"global_step": np.array(20)}
    for name, tensor in read_safetensors(GOLDEN)[0].items():
        theirs = googles_name(name)
        value = tensor.read().T if theirs.endswith("/kernel") else tensor.read()
        tensors |= {theirs: value, f"{theirs}/adam_m": value, f"{theirs}/adam_v": value}
    return tensors


def test_names_and_layouts_become_hugging_faces(tensorflow):
    tensors, optimizers = read_tensorflow_checkpoint(tensorflow(googles_tensors(), 10**7))
    expected, _ = read_safetensors(GOLDEN)
    assert tensors.keys() == expected.keys() and len(optimizers) == 2 * len(expected) + 1
    for name, tensor in expected.items():
        assert tensors[name].shape == tensor.shape
        np.testing.assert_array_equal(tensors[name].read(), tensor.read())


@pytest.mark.parametrize(
    "tensors, words",
    [
        (googles_tensors(), r"checkpoint \(ValueError: its index describes .* data files have 100\)"),
        ("abort", "TensorFlow was ended by signal 6 while it read it"),
    ],
    ids=["tensors larger than their files, before they are allocated", "a crash"],
)
def test_what_tensorflow_cannot_read_is_one_line(tensorflow, tensors, words):
    with pytest.raises(UsageError, match=words):
        read_tensorflow_checkpoint(tensorflow(tensors, data_bytes=100))


def test_it_is_found_by_its_index(tmp_path):
    assert find_tensorflow_checkpoint(tmp_path) is None
    (tmp_path / "bert_model.ckpt.index").touch()
    assert find_tensorflow_checkpoint(tmp_path) == tmp_path / "bert_model.ckpt"
    (tmp_path / "model.ckpt-20.index").touch()
    with pytest.raises(UsageError, match="has 2 checkpoints"):
        find_tensorflow_checkpoint(tmp_path)


@pytest.mark.parametrize("stands_in", [True, False])
def test_a_damaged_checkpoint_is_one_line(tmp_path, stands_in, slow, request):
    if stands_in:
        request.getfixturevalue("tensorflow")
    elif not slow:
        pytest.skip("with --tier slow TensorFlow itself reads it")
    (tmp_path / "bert_model.ckpt.index").write_bytes(b"none")
    with pytest.raises(UsageError, match="is no good TensorFlow checkpoint"):
        read_tensorflow_checkpoint(tmp_path / "bert_model.ckpt")


def test_without_tensorflow_the_extra_is_named(tmp_path, monkeypatch):
    monkeypatch.setattr(tensorflow_checkpoint.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install .*\[tensorflow\]"):
        read_tensorflow_checkpoint(tmp_path / "bert_model.ckpt")
