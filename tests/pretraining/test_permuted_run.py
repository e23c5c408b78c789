"""Permuted prediction (XLNet): the order, spans within a context, and a whole run."""

import json
import shutil

import jax
import numpy as np
import pytest
from conftest import prepared_copy
from stages import stopped_at
from unit_texts import MASK_ID, VOCABULARY, Text

import bert_jax
from bert_jax.cli.main import run as command
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.settings import SettingsError
from bert_jax.config.training import Phase
from bert_jax.layout import WORD_START
from bert_jax.pretraining.masking import MaskingKeys, divide_sequences, mask_sequences, order_of_prediction
from bert_jax.pretraining.pretrain import pretrain
from bert_jax.pretraining.units import _SPACED_WORDS, _draw, _spaced_spans, divide
from bert_jax.run.run_directory import RunDirectory

pytestmark = pytest.mark.long

STEPS = 60
OBJECTIVE = ObjectiveConfig(predict="permuted", pair="none", units="context", masked_share=1 / 6, evaluated_share=1 / 6)


@jax.jit
def chosen_and_ordered(tokens, keys):
    masked = mask_sequences(tokens, keys, OBJECTIVE.replacing, mask_id=MASK_ID, vocabulary_size=VOCABULARY)
    return masked, order_of_prediction(masked, MaskingKeys.of(keys).kind)


def test_no_token_is_replaced_and_a_sixth_is_predicted_in_an_order_of_its_own():
    text = Text([128, 100, 60, 33] * 64)
    keys = jax.random.split(jax.random.key(0), len(text.lengths))[:, None]
    tokens = text.laid_out()
    masked, ranks = (jax.tree.map(np.asarray, each) for each in chosen_and_ordered(tokens, keys))
    assert np.array_equal(masked.tokens.ids, tokens.ids)
    counts = masked.weights.sum(axis=1)
    assert abs(counts.sum() / text.lengths.sum() * 6 - 1) < 0.01
    assert [round(length / 6) for length in text.lengths] == counts.tolist()
    orders = set()
    for row, (places, used) in enumerate(zip(masked.places, masked.weights > 0, strict=True)):
        targets = places[used]
        assert sorted(ranks[row, targets]) == list(range(len(targets)))
        assert (np.delete(ranks[row], targets) == -1).all()
        # The targets of the second segment come after those of the first.
        second = tokens.segment[row, targets] > 0
        assert (
            not second.any() or second.all() or ranks[row, targets][~second].max() < ranks[row, targets][second].min()
        )
        orders.add(tuple(np.argsort(ranks[row, targets])[:5]))
    assert len(orders) > 100


def test_packed_sequences_have_the_targets_and_the_order_that_they_have_alone():
    text = Text([50, 40, 38])
    keys = jax.random.split(jax.random.key(1), 3)
    alone, ranks = chosen_and_ordered(text.laid_out(), keys[:, None])
    packed, of_row = chosen_and_ordered(text.laid_out(rows=np.zeros(3, int)), keys[None])
    begin = 0
    for number, length in enumerate(text.lengths):
        own, inside = np.asarray(ranks)[number, :length], np.asarray(of_row)[0, begin : begin + length]
        assert np.array_equal(own >= 0, inside >= 0)
        assert np.array_equal(np.argsort(own[own >= 0]), np.argsort(inside[inside >= 0]))
        begin += length


def spans_by_hand(units, drawn):
    """Spans and their tokens, token by token; `drawn`: for each place (words, tokens of context before the span)."""
    starts, inside = [], []
    before = words = after = 0
    is_inside = False
    for place, unit in enumerate(units):
        if not unit:
            before = words = after = 0
            is_inside = False
            continue
        if before == words == after == 0:
            words, before = drawn[place]
            after = 6 * words - before
        if before:
            before -= 1
            continue
        if words and unit & WORD_START:
            starts += [] if is_inside else [place]
            words, is_inside = words - 1, True
            inside.append(place)
        elif is_inside and not unit & WORD_START:
            inside.append(place)
        elif words == 0:
            after, is_inside = after - 1, False
    return starts, inside


def test_spans_stand_within_their_contexts():
    text = Text([128] * 40, seed=3)
    random = jax.random.bits(jax.random.key(2), (40, 128))
    tokens = text.laid_out()
    starts, inside = jax.vmap(lambda row, random: _spaced_spans(row, row.units > 0, random))(tokens, random)
    words = np.asarray(1 + _draw(random, _SPACED_WORDS))
    context = np.asarray(random & 0xFFFF).astype(np.int64) * 6 * words >> 16
    for row, units in enumerate(text.units):
        begin, tokens_of_spans = spans_by_hand(units, list(zip(words[row], context[row], strict=True)))
        assert np.flatnonzero(starts[row]).tolist() == begin
        assert np.flatnonzero(inside[row]).tolist() == tokens_of_spans
    counts = np.bincount(words.ravel(), minlength=6)[1:] / words.size
    expected = 1 / np.arange(1, 6)
    np.testing.assert_allclose(counts, expected / expected.sum(), atol=0.015)


def test_spans_are_chosen_before_single_pieces():
    text = Text([128] * 32, seed=5)
    keys = jax.random.split(jax.random.key(4), 32)[:, None]
    tokens = text.laid_out()
    masked, _ = chosen_and_ordered(tokens, keys)
    starts, _ = divide_sequences(tokens, keys, OBJECTIVE.units)
    single = np.asarray(
        jax.vmap(lambda row, keys: divide(row, MaskingKeys.of(keys).units, {"context": 1.0}).last)(tokens, keys)
    )
    for row in range(32):
        targets = np.asarray(masked.places)[row][np.asarray(masked.weights)[row] > 0]
        spans = (np.asarray(starts)[row] & ~single[row]).sum()
        skipped = spans - (np.asarray(starts)[row] & ~single[row])[targets].sum()
        # A single piece is chosen only where no span is left, or where each one left has more pieces than are missing.
        assert not single[row][targets].any() or skipped <= 2


@pytest.fixture(scope="module")
def config(tiny_config) -> RunConfig:
    model = tiny_config.model.replace(positions="relative", class_token="last", num_segments=0, model_type="xlnet")
    return tiny_config.replace(
        model=model,
        objective=OBJECTIVE,
        optimizer=tiny_config.optimizer.replace(peak_learning_rate=1e-2, bias_correction=True),
        phases=(Phase(steps=STEPS, length=32, batch_size=16),),
        evaluation=tiny_config.evaluation.replace(every=STEPS // 2),
        checkpoints=tiny_config.checkpoints.replace(every=STEPS // 2),
    )


@pytest.fixture(scope="module")
def run(config, tmp_path_factory) -> RunDirectory:
    run = RunDirectory(tmp_path_factory.mktemp("permuted") / "run")
    pretrain(config, run)
    return run


def test_it_learns_more_than_frequencies(run):
    results = json.loads(run.results_file.read_text())
    assert results["metric"] == "plm_accuracy" and results["loss"] == results["plm_loss"]
    assert results["plm_loss"] < results["baseline"]["plm_loss"] - 0.15


def test_a_stopped_run_ends_with_the_same_bits(run, config, tmp_path):
    copy = prepared_copy(run, tmp_path)
    with stopped_at(STEPS // 2 + 3):
        pretrain(config, copy)
    pretrain(config, copy)
    whole, resumed = (bert_jax.load(each.path).params for each in (run, copy))
    assert jax.tree.all(jax.tree.map(lambda a, b: np.array_equal(a, b), whole, resumed))


def test_masks_are_filled_by_the_query_stream(run, capsys):
    bert = bert_jax.load(run.path)
    ((piece, probability), *_), *_ = bert.fill_mask("The [MASK] sees the dog.")
    assert isinstance(piece, str) and 0 < probability < 1
    assert command(["fill-mask", str(run.path), "The [MASK] sees a [MASK]."]) == 0
    assert capsys.readouterr().out.count("0.") >= 2


def test_commands_take_the_run(run, tmp_path, capsys):
    assert command(["evaluate", str(run.path), "--json"]) == 0
    assert command(["inspect", str(run.path), "--rows", "1"]) == 0
    assert "predict by context" in capsys.readouterr().out
    (tmp_path / "texts.txt").write_text("The cat sees the dog.\n")
    texts, features = str(tmp_path / "texts.txt"), str(tmp_path / "out.npz")
    assert command(["features", str(run.path), texts, features, "--layers", "0", "2"]) == 0
    shutil.copytree(run.path, tmp_path / "copy")
    assert command(["report", str(tmp_path / "copy")]) == 0


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"phases.0.length": 7}, "at least 8"),
        ({"objective.pair": "next_sentence"}, "only masked tokens go with a question about segments"),
        ({"objective.predict": "masked"}, "are tokens predicted in permuted order"),
        ({"model.positions": "learned"}, "are tokens predicted in permuted order"),
    ],
)
def test_settings_that_do_not_fit_are_refused_in_one_line(config, changes, words):
    with pytest.raises(SettingsError, match=words) as caught:
        config.set(changes)
    assert "\n" not in str(caught.value)
