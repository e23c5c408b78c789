import math
import os
import subprocess

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from conftest import faked_devices, program

from bert_jax.config.model import ModelConfig
from bert_jax.config.training import OptimizerConfig
from bert_jax.model.bert import parameter_shapes
from bert_jax.model.sharding import make_mesh
from bert_jax.pretraining.objective import pretraining_trainer
from bert_jax.training import trainer
from bert_jax.training.optimizer import decays, learning_only, learning_rate, make_optimizer

DENSE = {"dense": {"kernel": jnp.arange(6.0).reshape(2, 3) / 10, "bias": jnp.ones(3)}}
UNMOVED = {"dense": {"kernel": jnp.zeros((2, 2))}}
PARAMS = {
    "task": DENSE,
    "masked_lm": {"norm": {"scale": jnp.ones(3)}, "dense": {"kernel": jnp.zeros((2, 2))}},  # starts from zero
    "next_sentence": UNMOVED,
}


def random_gradients(steps):
    """Trees like PARAMS, with global norms from far below to far above 1. UNMOVED has none."""
    rng = np.random.default_rng(0)

    def tree(size):
        drawn = jax.tree.map(lambda leaf: jnp.asarray(size * rng.normal(size=leaf.shape), jnp.float32), PARAMS)
        return drawn | {"next_sentence": UNMOVED}

    return list(map(tree, rng.permutation(np.geomspace(0.01, 3, steps))))


def by_hand(config, params, gradients):
    """Kingma and Ba (2015), algorithm 1, with BERT's changes, and You et al. (2020), algorithm 2, in float64.

    Clip by global norm; moments, corrected or not; decay of what is no bias and no scale; LAMB's ratio of norms, of
    the same; then the schedule's rate. One tree of `gradients` a step.
    """
    at = {name: np.float64(leaf) for name, leaf in named(params).items()}
    mean, square = ({name: np.zeros_like(leaf) for name, leaf in at.items()} for _ in range(2))
    for step, tree in enumerate(gradients):
        g = {name: np.float64(leaf) for name, leaf in named(tree).items()}
        norm = np.sqrt(sum((leaf**2).sum() for leaf in g.values()))
        for name in at:
            clipped = g[name] * (config.clip_norm / norm if norm > config.clip_norm else 1.0)
            mean[name] = config.beta1 * mean[name] + (1 - config.beta1) * clipped
            square[name] = config.beta2 * square[name] + (1 - config.beta2) * clipped**2
            m, v = mean[name], square[name]
            if config.bias_correction:
                m, v = m / (1 - config.beta1 ** (step + 1)), v / (1 - config.beta2 ** (step + 1))
            update = m / (np.sqrt(v) + config.epsilon)
            if "kernel" in name:
                update = update + config.weight_decay * at[name]
                norms = np.sqrt((at[name] ** 2).sum()), np.sqrt((update**2).sum())
                if config.name == "lamb" and min(norms) > 0:
                    update = update * norms[0] / norms[1]
            at[name] = at[name] - float(learning_rate(config, len(gradients))(step)) * update
    return at


def train(config, params, gradients):
    """Our optimizer over the trees of `gradients`, one a step, at our schedule's rates."""
    optimizer, rate = make_optimizer(config), learning_rate(config, len(gradients))

    @jax.jit
    def one(params, state, gradients, step):
        updates, state = optimizer.update(gradients, state, params)
        return jax.tree.map(lambda leaf, update: leaf + rate(step) * update, params, updates), state

    state = jax.jit(optimizer.init)(params)
    for step, tree in enumerate(gradients):
        params, state = one(params, state, tree, step)
    return params


def named(tree):
    return {jax.tree_util.keystr(path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(tree)}


@pytest.mark.parametrize("corrected", [False, True])
@pytest.mark.parametrize("name", ["adamw", "lamb"])
def test_an_optimizer_follows_its_published_formulas(name, corrected):
    large = {"weight_decay": 0.1, "peak_learning_rate": 0.03, "epsilon": 1e-4}  # so that each can be seen
    config = OptimizerConfig(name=name, bias_correction=corrected, warmup=0.2, **large)
    gradients = random_gradients(20)
    norms = [float(optax.tree.norm(tree)) for tree in gradients]
    assert min(norms) < config.clip_norm / 5 and max(norms) > config.clip_norm * 5
    expected = by_hand(config, PARAMS, gradients)
    moved = named(train(config, PARAMS, gradients))
    for path, leaf in moved.items():
        np.testing.assert_allclose(leaf, expected[path], rtol=1e-5, atol=2e-6, err_msg=path)
    assert (moved["['next_sentence']['dense']['kernel']"] == 0).all()


def test_tables_and_matrices_decay_biases_and_norms_do_not():
    shapes = parameter_shapes(ModelConfig.tiny(vocabulary_size=200))
    for path, decayed in named(decays(shapes)).items():
        assert decayed == (not path.endswith(("['bias']", "['scale']"))), path


def test_what_is_frozen_has_no_update_and_all_else_has_its_own():
    plain = make_optimizer(OptimizerConfig())
    learning = {"kernel": jnp.array([[True], [False]]), "bias": jnp.array(True)}
    half = lambda params: jax.tree.map(jnp.zeros_like, params) | {"task": {"dense": learning}}
    frozen, [gradients] = learning_only(plain, half), random_gradients(1)
    own, _ = plain.update(gradients, plain.init(PARAMS), PARAMS)
    left, state = frozen.update(gradients, frozen.init(PARAMS), PARAMS)
    np.testing.assert_array_equal(left["task"]["dense"]["kernel"][0], own["task"]["dense"]["kernel"][0])
    assert not left["task"]["dense"]["kernel"][1].any() and not left["masked_lm"]["norm"]["scale"].any()
    assert jax.tree.structure(state) == jax.tree.structure(plain.init(PARAMS))


def random_like(shapes, seed):
    """Of another size in every layer and projection, so that norms taken together would differ."""
    rng = np.random.default_rng(seed)

    def drawn(leaf):
        size = np.exp(rng.normal(size=leaf.shape[:3])).reshape(leaf.shape[:3] + (1,) * (leaf.ndim - 3))
        return jnp.asarray(size * rng.normal(size=leaf.shape), jnp.float32)

    return jax.tree.map(drawn, shapes)


def unstacked(path, leaf):
    """The separate tensors that `leaf` holds: one a layer, of an attention's kernel three, of a gated part's two."""
    name = jax.tree_util.keystr(path)
    if "layers" not in name:
        return {name: leaf}
    layers = {f"{number}{name}": layer for number, layer in enumerate(leaf)}
    if not name.endswith(("['attention']['kernel']", "['feedforward_gated']['kernel']")):
        return layers
    return {f"{part}{of}": layer[:, part] for of, layer in layers.items() for part in range(layer.shape[1])}


def taken_apart(tree):
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    return {name: part for path, leaf in leaves for name, part in unstacked(path, leaf).items()}


@pytest.mark.long
def test_lamb_takes_norms_by_layer_and_projection():
    model = ModelConfig(num_layers=3, hidden_size=8, num_heads=2, vocabulary_size=30, max_positions=6)
    shapes = parameter_shapes(model)
    params, gradients = random_like(shapes, 0), [random_like(shapes, seed) for seed in (1, 2, 3)]
    config = OptimizerConfig(name="lamb", weight_decay=0.1, peak_learning_rate=0.02)
    apart = taken_apart(params)
    assert len(apart) == len(jax.tree.leaves(shapes)) + 2 * 12 + 2 * 3  # 12 arrays a block, of each three; kernels
    kind = lambda name: "bias" if "bias" in name or "scale" in name else "kernel"
    by_name = lambda tree: {name: {"task": {"dense": {kind(name): leaf}}} for name, leaf in tree.items()}
    expected = train(config, by_name(apart), [by_name(taken_apart(tree)) for tree in gradients])
    for name, leaf in taken_apart(train(config, params, gradients)).items():
        np.testing.assert_allclose(leaf, *jax.tree.leaves(expected[name]), rtol=1e-5, atol=1e-6, err_msg=name)


MUON_MODEL = ModelConfig(num_layers=3, hidden_size=16, num_heads=2, vocabulary_size=30, max_positions=6)


def as_matrix(name, part):
    """A tensor of `taken_apart` as inputs x outputs; None for what is no matrix of a block."""
    if "layers" not in name or "kernel" not in name:
        return None
    inputs = 2 if name.endswith("['output']['kernel']") else 1
    return np.float64(part).reshape(math.prod(part.shape[:inputs]), -1)


def orthogonal_by_hand(matrix):
    """Jordan et al. (2024): five Newton-Schulz steps with the published coefficients, in float64."""
    matrix = matrix / np.linalg.norm(matrix)
    for _ in range(5):
        square = matrix @ matrix.T
        matrix = 3.4445 * matrix + (-4.7750 * square + 2.0315 * square @ square) @ matrix
    return matrix


@pytest.mark.parametrize(
    "feedforward, matrices_a_layer, dtype, rounding",
    [("dense", 6, "float32", 1e-4), ("gated", 7, "float32", 1e-4), ("dense", 6, "bfloat16", 0.06)],
)
def test_muon_makes_each_layers_and_projections_mean_orthogonal_at_adams_size(
    feedforward, matrices_a_layer, dtype, rounding
):
    shapes = parameter_shapes(MUON_MODEL.replace(feedforward=feedforward))
    config = OptimizerConfig(name="muon", weight_decay=0.1, clip_norm=1e9)
    params, gradients = random_like(shapes, 0), [random_like(shapes, seed) for seed in (1, 2)]
    optimizer = make_optimizer(config, dtype)
    state = optimizer.init(params)
    update = jax.jit(optimizer.update)
    for tree in gradients:
        updates, state = update(tree, state, params)
    first, second, weights = map(taken_apart, (*gradients, params))
    matrices = 0
    for name, update in taken_apart(updates).items():
        if (moved := as_matrix(name, update)) is None:
            continue
        g, h, w = (as_matrix(name, each[name]) for each in (first, second, weights))
        mean = 0.95 * (0.95 * 0.05 * g + 0.05 * h) / (1 - 0.95**3) + 0.05 * h / (1 - 0.95**2)  # Nesterov's
        expected = orthogonal_by_hand(mean) * 0.2 * max(mean.shape) ** 0.5
        difference = np.linalg.norm(-moved - 0.1 * w - expected)
        assert difference < rounding * np.linalg.norm(expected), name
        sizes = np.linalg.svd(expected, compute_uv=False) / (0.2 * max(mean.shape) ** 0.5)
        assert sizes.max() < 1.3 and np.median(sizes) > 0.6 and 0.15 < np.sqrt(np.mean(expected**2)) < 0.25
        matrices += 1
    assert matrices == 3 * matrices_a_layer


@pytest.mark.long
def test_all_but_the_matrices_of_blocks_have_adams_update_with_muon():
    shapes = parameter_shapes(MUON_MODEL)
    params, gradients = random_like(shapes, 0), random_like(shapes, 1)
    of_adam, of_muon = (
        taken_apart(optimizer.update(gradients, optimizer.init(params), params)[0])
        for optimizer in (make_optimizer(OptimizerConfig(name=name, weight_decay=0.1)) for name in ("adamw", "muon"))
    )
    for name, update in of_muon.items():
        same = bool((update == of_adam[name]).all())
        assert same == (as_matrix(name, update) is None), name


ON_EIGHT_DEVICES = """
import jax, sys
from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import MeshConfig
from bert_jax.config.training import OptimizerConfig
from bert_jax.model.bert import init
from bert_jax.training.optimizer import make_optimizer
from bert_jax.model.sharding import make_mesh, tree_shardings

params = jax.jit(lambda: init(ModelConfig.tiny(vocabulary_size=200), jax.random.key(0)))()
split = jax.device_put(params, tree_shardings(params, make_mesh(MeshConfig(data=2, fsdp=4))))
assert not split["bert"]["pooler"]["dense"]["kernel"].sharding.is_fully_replicated
for name in sys.argv[1:]:
    optimizer = make_optimizer(OptimizerConfig(name=name))
    update = jax.jit(lambda params: optimizer.update(params, optimizer.init(params), params)[0])
    differences = jax.tree.map(lambda one, other: abs(one - jax.device_get(other)).max(), update(params), update(split))
    print(max(map(float, jax.tree.leaves(differences))))
"""


@pytest.mark.long
def test_what_is_done_to_whole_matrices_does_not_depend_on_the_mesh():
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = program(ON_EIGHT_DEVICES, "lamb", "muon", env=os.environ | faked_devices(8), **pipes)
    differences, said = process.communicate()
    assert process.returncode == 0, said
    assert len(differences.split()) == 2
    assert max(map(float, differences.split())) < 1e-5  # rounding, in sums that are split otherwise


# The peak is 1, the warm-up 10 of 99 steps, so that 90 steps lead from the peak, at step 9, to 0. Each row holds
# step: rate, worked out by hand.
RATES = {
    "linear": {0: 0.1, 4: 0.5, 8: 0.9, 9: 1, 10: 89 / 90, 54: 0.5, 98: 1 / 90, 99: 0},
    "polynomial": {0: 0.1, 9: 1, 54: 0.25, 81: 0.04, 98: 1 / 8100, 99: 0},
    "cosine": {8: 0.9, 9: 1, 39: 0.75, 54: 0.5, 69: 0.25, 99: 0},
    "warmup_stable_decay": {8: 0.9, 9: 1, 60: 1, 79: 1, 80: 0.95, 89: 0.5, 98: 0.05, 99: 0},
}


@pytest.mark.parametrize("schedule", RATES)
def test_a_schedule_has_the_values_worked_out_by_hand(schedule):
    config = OptimizerConfig(peak_learning_rate=1.0, warmup=0.1, schedule=schedule, power=2.0, decay_share=0.2)
    rate = jax.jit(learning_rate(config, 99))
    for step, expected in RATES[schedule].items():
        assert float(rate(step)) == pytest.approx(expected, abs=1e-6), step


@pytest.mark.parametrize("warmup", [0.0, 0.1, 0.8])
@pytest.mark.parametrize("schedule", RATES)
def test_whatever_the_number_of_steps_each_has_a_rate_and_one_the_peak(schedule, warmup):
    config = OptimizerConfig(peak_learning_rate=2.0, warmup=warmup, schedule=schedule)
    for steps in (1, 2, 3, 4, 6, 10, 41):
        rates = [float(learning_rate(config, steps)(step)) for step in range(steps)]
        assert all(rate > 0 for rate in rates) and max(rates) == 2.0, steps
        peak = rates.index(2.0)
        assert warmup or peak == 0
        assert rates == [*sorted(rates[:peak]), *sorted(rates[peak:], reverse=True)], steps


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_a_training_multiplies_its_updates_in_the_type_of_its_model(tiny_config, dtype, monkeypatch):
    types = []
    monkeypatch.setattr(trainer, "make_optimizer", lambda config, dtype: types.append(dtype) or make_optimizer(config))
    config = tiny_config.change(model={"compute_dtype": dtype})
    pretraining_trainer(config, make_mesh(config.mesh), 150)
    assert types == [dtype]
