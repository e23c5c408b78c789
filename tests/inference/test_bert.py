import numpy as np
import pytest

import bert_jax
from bert_jax.system.errors import UsageError


@pytest.fixture(scope="module")
def bert(tiny_run):
    return bert_jax.load(tiny_run.path)


def test_masks_are_filled_in_order_with_probabilities(bert):
    fills = bert.fill_mask("The old [MASK] sees the [MASK] near house.", top=7)
    assert len(fills) == 2 and all(len(one) == 7 for one in fills)
    for one in fills:
        probabilities = [probability for _, probability in one]
        assert probabilities == sorted(probabilities, reverse=True) and 0 < sum(probabilities) < 1
        assert all(piece in bert.tokenizer.vocabulary.ids for piece, _ in one)
    everything = bert.fill_mask("The [MASK].", top=1000)[0]
    assert len(everything) == len(bert.tokenizer.vocabulary)
    assert sum(probability for _, probability in everything) == pytest.approx(1, abs=1e-5)


@pytest.mark.parametrize(
    "text, words", [("no mask", "there is no [MASK]"), ("word " * 40 + "[MASK]", "tokens and the model 32 positions")]
)
def test_a_text_that_cannot_be_filled_is_refused(bert, text, words):
    with pytest.raises(UsageError) as refusal:
        bert.fill_mask(text)
    assert words in str(refusal.value)


def test_a_text_has_the_same_vectors_alone_and_among_others(bert):
    texts = ["The old cat.", "The bright river crosses the broken bridge near the old house number 7.", ""]
    together = bert.encode(texts)
    assert together.tokens.shape[:2] == together.mask.shape and together.pooled.shape == (3, 32)
    for row, text in enumerate(texts):
        alone = bert.encode([text])
        size = int(together.mask[row].sum())
        assert size == len(bert.tokenizer.encode(text)) + 2 == alone.mask.shape[1]
        np.testing.assert_allclose(together.tokens[row, :size], alone.tokens[0], atol=2e-6)
        np.testing.assert_allclose(together.pooled[row], alone.pooled[0], atol=2e-6)


def test_a_stream_gives_what_encode_gives(bert):
    texts = [f"The cat sees the dog number {number}." for number in range(7)]
    batches = list(bert.encode_stream(iter(texts), batch_size=3))
    assert [len(batch.pooled) for batch in batches] == [3, 3, 1]
    np.testing.assert_allclose(
        np.concatenate([batch.pooled for batch in batches]), bert.encode(texts).pooled, atol=2e-6
    )


def test_texts_too_long_are_cut_and_counted(bert, capsys):
    assert bert.encode(["cat " * 50, "dog"]).tokens.shape[1] == 32
    assert "1 of 2 texts are longer than 30 pieces and were cut" in capsys.readouterr().err


def test_attention_is_a_distribution_for_every_layer_and_head(bert):
    text = "The old cat sees the dog."
    attention = bert.attention(text)
    size = len(bert.tokenizer.encode(text)) + 2
    assert attention.shape == (2, 2, size, size)
    np.testing.assert_allclose(attention.sum(axis=-1), 1, atol=1e-5)


def test_a_checkpoint_loads_like_its_run(bert, tiny_run):
    one = bert_jax.load(tiny_run.checkpoints / "00000012")
    assert one.fill_mask("The [MASK].") == bert.fill_mask("The [MASK].")
    other = bert_jax.load(tiny_run.checkpoints / "00000008")
    assert other.fill_mask("The [MASK].") != bert.fill_mask("The [MASK].")
    assert bert_jax.load_tokenizer(tiny_run.path).vocabulary.pieces == bert.tokenizer.vocabulary.pieces


def test_what_does_not_belong_together_is_refused(bert):
    with pytest.raises(UsageError, match="has 150 pieces and the model 151"):
        type(bert)(bert.config.replace(vocabulary_size=151), bert.params, bert.tokenizer)


def test_a_path_without_a_model_is_refused(tmp_path):
    with pytest.raises(UsageError, match="holds no finished checkpoint"):
        bert_jax.load(tmp_path)
