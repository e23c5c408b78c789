"""The loss of vectors against a direct computation, in parts and on several devices."""

import functools
import os
import pickle
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import ExecutionConfig, MeshConfig
from bert_jax.config.task import TaskConfig
from bert_jax.finetuning.batches import TextBatch, TextBatches
from bert_jax.finetuning.contrast import ContrastObjective
from bert_jax.finetuning.task import Example
from bert_jax.layout import TokenSequence, lay_out_sequences
from bert_jax.model.sharding import batch_sharding, make_mesh, on_mesh, placed

pytestmark = pytest.mark.long

MODEL = ModelConfig(
    **{"num_layers": 1, "hidden_size": 16, "num_heads": 2, "max_positions": 32, "vocabulary_size": 40},
    initializer_range=0.3,
)
TASK = TaskConfig(
    **{"name": "x", "kind": "vectors", "texts": ("query", "positive"), "label": "score"},
    **{"batch_size": 16, "max_length": 24, "most_negatives": 1, "epochs": 1.0, "temperature": 0.5},
)
KEYS_SEED = 7


def sequence(*ids):
    return TokenSequence((2, *ids, 3), len(ids) + 2)


def examples(count=16, scored=False):
    """Groups of texts of different lengths: two of them have equal first texts, two equal second ones, and the negative
    of one is the second text of another with the same first text."""
    random = np.random.default_rng(1)
    groups = []
    for number in range(count):
        texts = [sequence(*random.integers(5, 40, random.integers(1, 12))) for _ in range(2 + number % 2)]
        groups.append(Example(tuple(texts), float(number % 5) if scored else None))
    groups[3] = groups[3]._replace(sequences=(groups[0].sequences[0], *groups[3].sequences[1:]))
    groups[6] = groups[6]._replace(sequences=(groups[6].sequences[0], groups[1].sequences[1]))
    groups[5] = groups[5]._replace(sequences=(groups[0].sequences[0], *groups[5].sequences[1:]))
    groups[7] = groups[7]._replace(sequences=(groups[0].sequences[0], groups[7].sequences[1], groups[0].sequences[1]))
    return groups


def batches(task=TASK, multiple=4) -> TextBatches:
    return TextBatches(examples(scored=task.scored), task, seed=0, pad_id=0, multiple=multiple)


def batch_of(task=TASK) -> TextBatch:
    return jax.tree.map(jnp.asarray, batches(task)[0])


@functools.cache
def objective_of(accumulation: int = 1, dropout: float = 0.0, **settings) -> ContrastObjective:
    model = MODEL.replace(dropout=dropout, attention_dropout=dropout)
    return ContrastObjective(TASK.replace(**settings), model, ExecutionConfig(accumulation=accumulation))


@pytest.fixture(scope="module")
def params():
    return objective_of().init(jax.random.key(0))


def keys_of(batch):
    keys = jax.random.split(jax.random.key(KEYS_SEED), batch.ordinal.size)
    return keys.reshape(batch.ordinal.shape)


def vectors_of(params, groups):
    """The vectors of each group's texts, each from a row of its own."""
    texts = [text for group in groups for text in group.sequences]
    tokens = jax.tree.map(jnp.asarray, lay_out_sequences(texts, (len(texts), 24), 0))
    found = jax.jit(objective_of()._encoder.apply)({"params": params}, tokens)[:, 0]
    return np.split(np.asarray(found, np.float64), np.cumsum([len(group.sequences) for group in groups])[:-1])


def of_unit_length(vectors, width=None):
    cut = vectors[:, :width]
    return cut / np.linalg.norm(cut, axis=1, keepdims=True)


def directly(groups, vectors, directions):
    """The mean loss of pairs that match, pair by pair, and the number of texts that are left out."""
    ids = [[tuple(one.ids) for one in group.sequences] for group in groups]
    pairs = {texts[:2] for texts in map(tuple, ids)}
    total, excluded = 0.0, 0
    for own, (first, second, *_) in enumerate(ids):
        candidates, barred = [], 0
        for other, texts in enumerate(ids):
            for slot, text in list(enumerate(texts))[1:]:
                matches = text == first or (first, text) in pairs
                if matches and (other, slot) != (own, 1):
                    barred += 1
                else:
                    candidates.append((float(vectors[own][0] @ vectors[other][slot]), (other, slot) == (own, 1)))
        logits = np.array([cosine for cosine, _ in candidates]) / TASK.temperature
        right = next(number for number, (_, mine) in enumerate(candidates) if mine)
        loss = np.log(np.exp(logits).sum()) - logits[right]
        if directions == "both":
            related = [
                other != own and (texts[0] == second or (texts[0], second) in pairs) for other, texts in enumerate(ids)
            ]
            back = np.array([float(vectors[own][1] @ each[0]) for each in vectors]) / TASK.temperature
            loss = (loss + np.log(np.exp(back[~np.array(related)]).sum()) - back[own]) / 2
        total, excluded = total + loss, excluded + barred
    return total / len(ids), excluded / len(ids)


@pytest.mark.parametrize(("directions", "widths"), [("both", ()), ("query", (8, 4))])
def test_each_first_text_is_told_apart_from_all_others_that_do_not_match_it(params, directions, widths):
    objective = objective_of(directions=directions, widths=widths)
    groups, batch = examples(), batch_of()
    in_order = [groups[number] for number in batches().record_numbers(0)]
    found = jax.jit(objective.measure)(params, batch, None)
    vectors = vectors_of(params, in_order)
    cut = ([of_unit_length(each, width) for each in vectors] for width in (16, *widths))
    expected = [directly(in_order, each, directions) for each in cut]
    np.testing.assert_allclose(found["task_loss"].value, np.mean([loss for loss, _ in expected]), rtol=1e-5)
    np.testing.assert_allclose(found["excluded"].value, expected[0][1])
    assert expected[0][1] > 1 and found["task_loss"].count == objective.counts(batch)["task_loss"] == 16


def test_equal_vectors_find_nothing(params):
    found = jax.jit(objective_of().measure)(jax.tree.map(jnp.zeros_like, params), batch_of(), None)
    assert float(found["accuracy"].value) == 0


def test_scored_pairs_are_ordered(params):
    task = TASK.replace(scored=True)
    objective, groups, batch = objective_of(scored=True), examples(scored=True), batch_of(task)
    found = jax.jit(objective.measure)(params, batch, None)
    unit = map(of_unit_length, vectors_of(params, groups))
    cosines = [float(first @ second) / TASK.temperature for first, second, *_ in unit]
    scores = [group.target for group in groups]
    pairs = [(low, high) for low in range(16) for high in range(16) if scores[low] < scores[high]]
    loss = np.log(1 + sum(np.exp(cosines[low] - cosines[high]) for low, high in pairs))
    np.testing.assert_allclose(found["task_loss"].value, loss, rtol=1e-5)
    right = np.mean([cosines[low] < cosines[high] for low, high in pairs])
    np.testing.assert_allclose(found["accuracy"].value, right, rtol=1e-5)


def gradients(objective, params, batch):
    return jax.jit(objective.gradients, static_argnums=3)(params, batch, keys_of(batch), 1)


@pytest.fixture(scope="module")
def whole(params):
    """The gradients of a batch of pairs that is not divided, with dropout, and what is measured with them."""
    return gradients(objective_of(dropout=0.1), params, batch_of())


@pytest.mark.parametrize("scored", [False, True])
def test_parts_give_the_gradients_of_the_undivided_batch_with_dropout(params, whole, scored):
    batch, settings = batch_of(TASK.replace(scored=scored)), {"dropout": 0.1, "scored": scored}
    expected, measured = gradients(objective_of(**settings), params, batch) if scored else whole
    parted, measured_too = gradients(objective_of(accumulation=4, **settings), params, batch)
    without = jax.jit(objective_of(scored=scored).measure)(params, batch, None)
    assert abs(float(measured["task_loss"].value - without["task_loss"].value)) > 1e-4  # dropout is on
    check_equal(expected, parted)
    np.testing.assert_allclose(measured["task_loss"].value, measured_too["task_loss"].value, rtol=1e-6)


def check_equal(gradients, others):
    for one, other in zip(jax.tree.leaves(gradients), jax.tree.leaves(others), strict=True):
        largest = np.abs(one).max()
        np.testing.assert_allclose(other, one, atol=1e-5 * largest)


ON_A_MESH = """
import pickle, sys
sys.path.insert(0, sys.argv[2])
from test_contrast import on_eight_devices
with open(sys.argv[1], "wb") as file:
    pickle.dump(on_eight_devices(), file)
"""


def on_eight_devices():
    """The gradients with dropout over all devices, in two parts."""
    batch, mesh = batches(multiple=16)[0], make_mesh(MeshConfig(), jax.devices())
    assert mesh.size == 8
    objective = objective_of(accumulation=2, dropout=0.1)
    params = objective.init(jax.random.key(0))
    step = jax.jit(on_mesh(mesh, functools.partial(objective.gradients, microbatches=1)))
    return jax.device_get(step(params, *placed((batch, keys_of(batch)), batch_sharding(mesh), len(batch.slot)))[0])


def test_eight_devices_give_the_gradients_of_one(whole, tmp_path):
    from conftest import faked_devices, program  # of which the other process needs nothing

    arguments, how = (tmp_path / "gradients", os.path.dirname(__file__)), {"stderr": subprocess.PIPE, "text": True}
    process = program(ON_A_MESH, *arguments, env=os.environ | faked_devices(8), **how)
    _, said = process.communicate()
    assert process.returncode == 0, said
    check_equal(whole[0], pickle.loads((tmp_path / "gradients").read_bytes()))
