"""Which vectors are taken for a model's: those of the same numbers, in files of earlier releases of some of them."""

import numpy as np
import pytest

from bert_jax.inference.vector_file import SAMPLED_NUMBERS, Origin, check_origin, model_content
from bert_jax.system.errors import UsageError
from bert_jax.text.tokenizer import load_tokenizer


@pytest.fixture(scope="module")
def tokenizer(tiny_run):
    return load_tokenizer(tiny_run.tokenizer_directory)


def origin(params, tokenizer) -> Origin:
    sampled, whole = model_content(params, tokenizer, SAMPLED_NUMBERS), model_content(params, tokenizer)
    return Origin(model=sampled, model_content=whole, vectors="the mean over its tokens")


def test_one_number_that_is_changed_is_another_model(tokenizer, capsys):
    params = {"bert": {"word": np.ones((4, 5_000), np.float32), "pooler": np.zeros(3)}}
    written = origin(params, tokenizer)
    check_origin("a.npz", written, origin(params | {"head": 1}, tokenizer))
    params["bert"]["word"][1, 1] += 1e-6
    here = origin(params, tokenizer)
    assert here.model == written.model  # earlier releases look at every fifth number
    words = f"another model .{written.model_content}, and this one is {here.model_content}"
    with pytest.raises(UsageError, match=words):
        check_origin("a.npz", written, here)
    check_origin("a.npz", written.model_copy(update={"model_content": ""}), here)  # of an earlier release
    params["bert"]["word"][0, 0] += 1
    with pytest.raises(UsageError, match=f"another model .{written.model}, and this one is"):
        check_origin("a.npz", written.model_copy(update={"model_content": ""}), origin(params, tokenizer))
    assert not capsys.readouterr().err
