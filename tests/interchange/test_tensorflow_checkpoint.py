import re
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


class Reader:
    """Stands in for TensorFlow's: the golden model under Google's names, with the optimizer's slots."""

    def __init__(self):
        self.tensors = {}
        for name, tensor in read_safetensors(GOLDEN)[0].items():
            theirs = googles_name(name)
            value = tensor.read().T if theirs.endswith("/kernel") else tensor.read()
            self.tensors |= {theirs: value, f"{theirs}/adam_m": value, f"{theirs}/adam_v": value}
        self.tensors["global_step"] = np.array(20)

    def get_variable_to_shape_map(self):
        return {name: list(tensor.shape) for name, tensor in self.tensors.items()}

    def get_tensor(self, name):
        return self.tensors[name]


def test_names_and_layouts_become_hugging_faces(monkeypatch):
    monkeypatch.setattr(tensorflow_checkpoint, "_reader", lambda prefix: Reader())
    tensors, optimizers = read_tensorflow_checkpoint(Path("bert_model.ckpt"))
    expected, _ = read_safetensors(GOLDEN)
    assert tensors.keys() == expected.keys() and len(optimizers) == 2 * len(expected) + 1
    for name, tensor in expected.items():
        assert tensors[name].shape == tensor.shape
        np.testing.assert_array_equal(tensors[name].read(), tensor.read())


def test_it_is_found_by_its_index(tmp_path):
    assert find_tensorflow_checkpoint(tmp_path) is None
    (tmp_path / "bert_model.ckpt.index").touch()
    assert find_tensorflow_checkpoint(tmp_path) == tmp_path / "bert_model.ckpt"
    (tmp_path / "model.ckpt-20.index").touch()
    with pytest.raises(UsageError, match="has 2 checkpoints"):
        find_tensorflow_checkpoint(tmp_path)


def test_a_damaged_checkpoint_or_no_tensorflow_is_one_line(tmp_path):
    (tmp_path / "bert_model.ckpt.index").write_bytes(b"none")
    with pytest.raises(UsageError, match="bert_jax\\[tensorflow\\]|is no good TensorFlow checkpoint"):
        read_tensorflow_checkpoint(tmp_path / "bert_model.ckpt")
