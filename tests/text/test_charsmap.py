import base64
from pathlib import Path

import numpy as np
import pytest
from sentencepiece.sentencepiece_model_pb2 import ModelProto

from bert_jax.system.errors import UsageError
from bert_jax.text.charsmap import charsmap_fault, normalizer_fault
from bert_jax.text.sentencepiece import read_model

MODEL = Path(__file__).parents[1] / "golden" / "tokenizers" / "spiece.model"


@pytest.fixture(scope="module")
def charsmap():
    return read_model(MODEL).normalizer_spec.precompiled_charsmap


def changed(data, at, value):
    return data[:at] + value + data[at + len(value) :]


def test_a_good_one_has_no_fault(charsmap):
    assert charsmap_fault(charsmap) is None
    step = {"type": "Precompiled", "precompiled_charsmap": base64.b64encode(charsmap).decode()}
    assert normalizer_fault({"type": "Sequence", "normalizers": [{"type": "NFC"}, step]}) is None


@pytest.mark.parametrize(
    "damage, words",
    [
        (lambda data: b"", "of the size"),
        (lambda data: data[:1000], "of the size"),
        (lambda data: changed(data, 0, b"\xff\xff\xff\x7f"), "of the size"),
        (lambda data: changed(data, len(data) - 9, b"\xff"), "not UTF-8"),
        (lambda data: data[:-1] + b"x", "has no end"),
        (lambda data: changed(data, 4, b"\xff\xff\xff\xff"), "outside itself"),
    ],
)
def test_a_damaged_one_is_refused_when_it_is_read(charsmap, damage, words, tmp_path):
    damaged = damage(charsmap)
    assert words in charsmap_fault(damaged)
    encoded = base64.b64encode(damaged).decode()
    assert words in normalizer_fault({"normalizers": [{"type": "Precompiled", "precompiled_charsmap": encoded}]})
    if damaged:
        model = ModelProto.FromString(MODEL.read_bytes())
        model.normalizer_spec.precompiled_charsmap = damaged
        (tmp_path / "spiece.model").write_bytes(model.SerializeToString())
        with pytest.raises(UsageError, match="precompiled_charsmap is damaged"):
            read_model(tmp_path / "spiece.model")


def test_one_that_is_not_base64_is_refused():
    assert normalizer_fault({"type": "Precompiled", "precompiled_charsmap": "AAAAA"}) == "it isn't base64"
    assert normalizer_fault({"type": "Precompiled", "precompiled_charsmap": {"a": 1}}) == "it isn't base64"


def test_one_without_fault_never_breaks_the_library(charsmap):
    tokenizers, random = pytest.importorskip("tokenizers"), np.random.default_rng(0)
    text, good = "".join(map(chr, random.integers(32, 0xD7FF, 3000))), 0
    for _ in range(60):
        at, value = int(random.integers(0, len(charsmap))), random.bytes(1)
        damaged = changed(charsmap, at, value)
        if charsmap_fault(damaged) is None:
            good += 1
            tokenizers.normalizers.Precompiled(damaged).normalize_str(text)
    assert good
