"""Scores of texts: against PyTorch, against slow loops over single rows, and whatever stands in the same batch."""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from conftest import story
from trained_tokenizers import trained

from bert_jax.config.model import ModelConfig
from bert_jax.inference.bert import Bert
from bert_jax.inference.scoring import ScoreTotals
from bert_jax.interchange.export import write_model_directory
from bert_jax.layout import TokenSequence, lay_out_sequences
from bert_jax.model.bert import BertForPretraining, init
from bert_jax.system.errors import UsageError

TEXTS = ["The old cat sees the dog.", "A quiet painter 77 crosses!", "forest", "The river near the house number 12."]
TEXTS += [" ".join(story(3)[0].split()[:12]), "unfathomable housecat"]
SMALL = {"num_layers": 1, "hidden_size": 16, "num_heads": 2, "max_positions": 40, "initializer_range": 0.3}


def random_bert(bert, **settings) -> Bert:
    """A model of random parameters with the tokenizer of `bert`."""
    config = ModelConfig(
        **SMALL | {"vocabulary_size": len(bert.tokenizer.vocabulary), "compute_dtype": "float32"} | settings
    )
    return Bert(config, init(config, jax.random.key(3)), bert.tokenizer)


@pytest.fixture(scope="module")
def logits_of():
    """The log probabilities at each place of one row of a model, whose rows are padded to one length."""
    compiled = {}

    def of(model: Bert, ids: list[int]) -> np.ndarray:
        tokens = lay_out_sequences([TokenSequence(ids, len(ids))], (1, 24), 0)
        run = compiled.setdefault(model.config, jax.jit(BertForPretraining(model.config).apply))
        logits = run({"params": model.params}, jax.tree.map(jnp.asarray, tokens), None)[0][0]
        places = logits.reshape(24, -1, logits.shape[-1])[: len(ids), :, : len(model.tokenizer.vocabulary)]
        return np.asarray(jax.nn.log_softmax(places))

    return of


@pytest.mark.parametrize("method", ["token", "word"])
def test_scores_are_those_of_a_loop_in_pytorch(bert, method, tmp_path):
    from pairs_in_torch import pseudo_log_likelihoods

    write_model_directory(tmp_path / "model", bert.config, jax.device_get(bert.params), bert.tokenizer)
    expected = pseudo_log_likelihoods(tmp_path / "model", TEXTS, method)
    found = [each.logs for each in bert.score_stream(TEXTS, method)]
    assert [len(logs) for logs in found] == [len(logs) for logs in expected] and len(found[-1]) > 6
    for ours, theirs in zip(found, expected):
        np.testing.assert_allclose(ours, theirs, atol=1e-4)
    assert bert.score(TEXTS, method) == pytest.approx([sum(logs) for logs in expected], abs=1e-4)


@pytest.mark.long
def test_word_masks_the_later_pieces_of_a_word_of_any_tokenizer(bert, logits_of):
    tokenizer = trained("unigram", 80)
    config = ModelConfig(**SMALL | {"vocabulary_size": len(tokenizer.vocabulary), "compute_dtype": "float32"})
    model = Bert(config, init(config, jax.random.key(0)), tokenizer)
    [scored] = model.score_stream(["the quick foxes, brown"], "word")
    before, after = tokenizer.vocabulary.frame.single
    ids, starts = [*before, *scored.ids, *after], tokenizer.starts_word
    for number, log in enumerate(scored.logs):
        place = end = len(before) + number
        while end == place or not starts[ids[end]]:  # special pieces start words
            end += 1
        hidden = [*ids[:place], *[tokenizer.vocabulary.mask_id] * (end - place), *ids[end:]]
        assert log == pytest.approx(logits_of(model, hidden)[place, 0, ids[place]], abs=1e-4)


def test_a_score_does_not_depend_on_the_other_texts(bert):
    many = [" ".join(words[: 3 + number % 9]) for number in range(90) for words in [story(number)[0].split()]]
    whole = bert.score(many)
    alone = [bert.score([text])[0] for text in many[:9]]
    np.testing.assert_allclose(whole[:9], alone, atol=1e-4)
    np.testing.assert_allclose(bert.score(many[::-1]), whole[::-1], atol=1e-4)


@pytest.mark.long
def test_a_causal_model_gives_the_log_likelihood(bert, logits_of):
    model = random_bert(bert, causal=True)
    for scored in model.score_stream(TEXTS):
        ids = [bert.tokenizer.vocabulary.cls_id, *scored.ids]
        expected = [logits_of(model, ids[:place])[-1, 0, ids[place]] for place in range(1, len(ids))]
        np.testing.assert_allclose(scored.logs, expected, atol=1e-4)
    with pytest.raises(
        UsageError, match=r"method=word is for models that mask, and the model is causal \(--model.causal\)"
    ):
        model.score(TEXTS, "word")


@pytest.mark.long
def test_both_directions_of_lstm_layers_give_their_mean(bert, logits_of):
    lstm = {"layer": "lstm", "num_layers": 2, "feedforward_size": 10, "dropout": 0.0, "attention_dropout": 0.1}
    model = random_bert(bert, **lstm, positions="none", num_segments=0)
    for scored in model.score_stream(TEXTS[:3]):
        ids = [bert.tokenizer.vocabulary.cls_id, *scored.ids, bert.tokenizer.vocabulary.sep_id]
        after, before = [], []
        for place in range(1, len(ids) - 1):
            after.append(logits_of(model, ids[:place])[-1, 0, ids[place]])
            before.append(logits_of(model, ids[place + 1 :])[0, 1, ids[place]])
        np.testing.assert_allclose(scored.logs, np.add(after, before) / 2, atol=1e-4)


@pytest.mark.long
def test_a_query_stream_predicts_each_token_from_all_others(bert):
    model = random_bert(bert, num_layers=2, positions="relative", num_segments=0)
    [scored] = model.score_stream(["The old cat the"], "token")
    spelled = [bert.tokenizer.spelled(number) for number in scored.ids]
    assert len(spelled) == 4 and "##" not in "".join(spelled)
    for number, log in enumerate(scored.logs):
        fills = dict(model.fill_mask(" ".join([*spelled[:number], "[MASK]", *spelled[number + 1 :]]), top=1000)[0])
        assert math.exp(log) == pytest.approx(fills[spelled[number]], rel=1e-3)


@pytest.mark.long
def test_the_generator_of_a_discriminator_scores_and_says_so(bert, capsys):
    electra = {"discriminator": True, "generator_divisor": 2, "num_heads": 4}
    model = random_bert(bert, **electra)
    assert model.score(TEXTS) == model.generator.score(TEXTS)
    assert capsys.readouterr().err.count("its generator, which predicts tokens, gives the scores") == 1
    with pytest.raises(UsageError, match="a discriminator without its generator, which predicts tokens"):
        random_bert(bert, **electra | {"generator_divisor": None}).score(TEXTS)


@pytest.mark.parametrize(
    "params_of, words",
    [
        (lambda params: params | {"masked_lm": None}, "no masked-language head, which predicts tokens"),
        (lambda params: jax.tree.map(lambda leaf: leaf * jnp.nan, params), "aren't finite, so its training diverged"),
    ],
)
def test_a_model_without_the_head_or_whose_training_diverged_is_refused(bert, params_of, words):
    params = {name: part for name, part in params_of(bert.params).items() if part is not None}
    with pytest.raises(UsageError, match=words):
        Bert(bert.config, params, bert.tokenizer).score(TEXTS[:1])


def test_texts_without_a_score_are_counted_in_one_line(bert, capsys):
    longest = "The " * (bert.config.max_positions - 2)
    texts = ["", TEXTS[0], longest, f"{longest}old", " \u200b\n", TEXTS[1]]
    assert [math.isnan(score) for score in bert.score(texts)] == [True, False, False, True, True, False]
    said = "3 of 6 texts have no score: 2 empty, 1 longer than the model's 32 positions\n"
    assert capsys.readouterr().err == said
    assert bert.score([]) == [] and not capsys.readouterr().err


def test_a_method_that_is_not_known_is_refused(bert):
    with pytest.raises(UsageError, match="method='letter' is unknown; choose from token, word"):
        bert.score(["a"], "letter")


def test_totals_are_over_all_tokens(bert):
    totals, logs = ScoreTotals(), []
    for scored in bert.score_stream([*TEXTS, ""]):
        totals.add(scored)
        logs += [] if scored.logs is None else scored.logs.tolist()
    content = totals.content
    assert content["texts"] == 7 and content["scored"] == 6 and content["tokens"] == len(logs)
    assert content["perplexity"] == pytest.approx(math.exp(-np.mean(logs)))
    characters = len("".join(TEXTS).replace(" ", ""))
    assert content["bits_per_character"] == pytest.approx(-sum(logs) / math.log(2) / characters)
    assert ScoreTotals().content["perplexity"] is None
