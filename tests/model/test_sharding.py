import contextlib

import jax
import optax
import pytest
from jax.sharding import PartitionSpec as P

from bert_jax.config.model import WIDEST_FILTER, ModelConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.operation import MeshConfig
from bert_jax.config.run import RunConfig
from bert_jax.model.bert import parameter_shapes
from bert_jax.model.parameters import PARAMETERS, parameter_at
from bert_jax.model.sharding import check_batch_size, make_mesh, parameter_spec, state_shardings, tree_shardings
from bert_jax.model.task import HeadShape, task_parameter_shapes
from bert_jax.pretraining.objective import TaggedTokens
from bert_jax.system.errors import UsageError


def names_of(tree):
    return ["/".join(key.key for key in path) for path, _ in jax.tree_util.tree_leaves_with_path(tree)]


LSTM = {"layer": "lstm", "positions": "none", "num_segments": 0, "character_filters": (4,) * WIDEST_FILTER}
DISENTANGLED = {"positions": "disentangled", "distance_buckets": 8, "clamped_distance": 64, "mask_decoder": True}
MODERN = {"num_layers": 4, "hidden_size": 32, "num_heads": 2, "biases": True}
PLAIN = ModelConfig.tiny(vocabulary_size=200)
OBJECTIVE = ObjectiveConfig(pair="none", tags="train.conllu")
MODELS = [
    PLAIN.replace(embedding_size=64, num_task_types=2),
    ModelConfig.modern(vocabulary_size=200, **MODERN),
    PLAIN.replace(positions="relative", num_segments=0),
    PLAIN.replace(positions="bucketed"),
    PLAIN.replace(**DISENTANGLED),
    PLAIN.replace(key_value_heads=1, tied_words=False),
    PLAIN.replace(**LSTM),
    PLAIN.replace(discriminator=True),
]
PRETRAINING = parameter_shapes(PLAIN)
TREES = [
    PRETRAINING,
    *map(parameter_shapes, MODELS),
    TaggedTokens(RunConfig(model=PLAIN, objective=OBJECTIVE), mask_id=4).parameter_shapes,
    task_parameter_shapes(PLAIN, HeadShape("pooled", 3, mixes=True)),
]


def test_every_parameter_has_a_row_of_as_many_axes_and_every_row_a_parameter():
    leaves = {name: leaf for tree in TREES for name, leaf in zip(names_of(tree), jax.tree.leaves(tree))}
    assert {name: len(parameter_at(name).axes) for name in leaves} == {name: leaf.ndim for name, leaf in leaves.items()}
    assert set(leaves) == {parameter.path for parameter in PARAMETERS}


def test_parameters_are_split_as_megatron_and_fsdp_have_it():
    layers = "bert/encoder/layers"
    expected = {
        "bert/embeddings/word": P(("tensor", "fsdp"), None),
        "bert/embeddings/position": P(None, "fsdp"),
        "bert/embeddings/norm/scale": P(None),
        "bert/encoder/distances/table": P(None, "tensor"),
        f"{layers}/attention/kernel": P(None, "fsdp", None, "tensor", None),
        f"{layers}/attention/bias": P(None, None, "tensor", None),
        f"{layers}/attention/output/kernel": P(None, "tensor", None, "fsdp"),
        f"{layers}/attention/output/bias": P(None, None),
        f"{layers}/feedforward_in/kernel": P(None, "fsdp", "tensor"),
        f"{layers}/feedforward_in/bias": P(None, "tensor"),
        f"{layers}/feedforward_out/kernel": P(None, "tensor", "fsdp"),
        f"{layers}/recurrence/kernel": P(None, None, "fsdp", None, None),
        "bert/pooler/dense/kernel": P("fsdp", "tensor"),
        "masked_lm/dense/kernel": P("fsdp", "tensor"),
        "masked_lm/bias": P(("tensor", "fsdp")),
        "next_sentence/dense/kernel": P("fsdp", None),
        "replaced/dense/kernel": P("fsdp", "tensor"),
        f"generator/{layers}/feedforward_in/kernel": P(None, "fsdp", "tensor"),
        "task/dense/kernel": P("fsdp", None),
        "task/dense/bias": P(None),
    }
    assert {name: parameter_spec(name) for name in expected} == expected


def test_slots_follow_their_parameter_and_those_of_another_shape_are_whole():
    mesh = jax.sharding.AbstractMesh((1, 2, 2), ("data", "fsdp", "tensor"))
    params = PRETRAINING
    state = (optax.scale_by_adam().init(params), optax.scale_by_factored_rms(min_dim_size_to_factor=8).init(params))
    adam, factored = state_shardings(state, params, mesh)
    assert adam.mu == adam.nu == tree_shardings(params, mesh)
    assert adam.count.spec == P() and all(one.spec == P() for one in jax.tree.leaves(factored.v_row))


@pytest.mark.parametrize("name", ["bert/unheard/kernel", "bert/embeddings/norm/kernel"])
def test_a_parameter_that_has_no_row_is_an_error(name):
    with pytest.raises(ValueError, match=f"PARAMETERS .* has no row for the parameter {name}"):
        parameter_spec(name)


def test_a_mesh_takes_all_devices_or_is_refused():
    assert dict(make_mesh(MeshConfig()).shape) == {"data": 1, "fsdp": 1, "tensor": 1}
    with pytest.raises(
        UsageError, match="--mesh.data=-1 x --mesh.fsdp=3 x --mesh.tensor=1 and this machine has 1 device: "
    ):
        make_mesh(MeshConfig(fsdp=3))
    with pytest.raises(UsageError, match="--mesh.data=-1 x --mesh.fsdp=-1"):
        make_mesh(MeshConfig(fsdp=-1))


@pytest.mark.parametrize(
    "mesh, batch_size, accumulation, said",
    [
        ((2, 4, 1), 16, 2, None),
        ((2, 2, 2), 4, 1, None),  # over data and fsdp alone
        ((2, 4, 1), 12, 1, "a batch of 12 doesn't divide over 8 devices; choose a multiple of 8"),
        ((2, 4, 1), 24, 2, "a batch of 24 in 2 microbatches doesn't divide over 8 devices.*multiple of 16"),
        ((2, 2, 2), 6, 1, "a batch of 6 doesn't divide over --mesh.data x --mesh.fsdp = 4 parts"),
    ],
)
def test_a_batch_that_the_devices_do_not_divide_is_refused(mesh, batch_size, accumulation, said):
    mesh = jax.sharding.AbstractMesh(mesh, ("data", "fsdp", "tensor"))
    with pytest.raises(UsageError, match=said) if said else contextlib.nullcontext():
        check_batch_size(batch_size, accumulation, mesh)


@pytest.mark.parametrize(
    "mesh, sizes, said",
    [
        ((1, 8, 1), {"hidden_size": 36, "num_heads": 2}, "has 36 rows on axis 1, which --mesh.fsdp=8 doesn't divide"),
        (
            (1, 1, 4),
            {"hidden_size": 48, "num_heads": 6},
            "attention/bias has 6 rows on axis 2, which --mesh.tensor=4 doesn't divide",
        ),
    ],
)
def test_an_axis_that_the_mesh_does_not_divide_is_refused(mesh, sizes, said):
    shapes = parameter_shapes(ModelConfig(num_layers=1, vocabulary_size=200, **sizes))
    with pytest.raises(UsageError, match=said):
        tree_shardings(shapes, jax.sharding.AbstractMesh(mesh, ("data", "fsdp", "tensor")))
