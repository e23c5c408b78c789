import jax
import pytest
from jax.sharding import PartitionSpec as P

from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import MeshConfig
from bert_jax.model.bert import parameter_shapes
from bert_jax.system.errors import UsageError
from bert_jax.training.sharding import PARAMETER_TABLE, check_batch_size, make_mesh, parameter_spec, tree_shardings


def names_of(tree):
    return ["/".join(key.key for key in path) for path, _ in jax.tree_util.tree_leaves_with_path(tree)]


def test_every_parameter_matches_one_row_and_every_row_some_parameter():
    names = names_of(parameter_shapes(ModelConfig.tiny(vocabulary_size=200)))
    specs = {name: parameter_spec(name) for name in names}
    assert specs["bert/embeddings/word"] == P(("tensor", "fsdp"), None)
    import re

    for pattern, _ in PARAMETER_TABLE:
        assert any(re.search(f"(^|/)({pattern})$", name) for name in names), pattern


def test_the_layer_axis_is_never_split():
    for name in names_of(parameter_shapes(ModelConfig.tiny(vocabulary_size=200))):
        if "layers" in name:
            assert not parameter_spec(name) or parameter_spec(name)[0] is None


def test_slots_follow_their_parameter():
    assert parameter_spec("1/square/bert/pooler/dense/kernel") == parameter_spec("bert/pooler/dense/kernel")


@pytest.mark.parametrize("name, count", [("bert/unheard/kernel", 0), ("bert/embeddings/norm/kernel", 0)])
def test_a_parameter_that_no_row_matches_is_an_error(name, count):
    with pytest.raises(ValueError, match=f"{count} rows of the sharding table match the parameter {name}"):
        parameter_spec(name)


def test_a_mesh_takes_all_devices_or_is_refused():
    assert dict(make_mesh(MeshConfig()).shape) == {"data": 1, "fsdp": 1, "tensor": 1}
    with pytest.raises(UsageError, match="mesh.data=-1 x mesh.fsdp=3 x mesh.tensor=1 and this machine has 1 device: "):
        make_mesh(MeshConfig(fsdp=3))
    with pytest.raises(UsageError, match="mesh.data=-1 x mesh.fsdp=-1"):
        make_mesh(MeshConfig(fsdp=-1))


def test_a_batch_that_the_devices_do_not_divide_is_refused():
    mesh = jax.sharding.AbstractMesh((2, 4, 1), ("data", "fsdp", "tensor"))
    check_batch_size(16, 2, mesh)
    with pytest.raises(UsageError, match="a batch of 12 doesn't divide over 8 devices; choose a multiple of 8"):
        check_batch_size(12, 1, mesh)
    with pytest.raises(
        UsageError, match="a batch of 24 in 2 microbatches doesn't divide over 8 devices.*multiple of 16"
    ):
        check_batch_size(24, 2, mesh)


def test_an_axis_that_the_mesh_does_not_divide_is_refused():
    shapes = parameter_shapes(ModelConfig(num_layers=1, hidden_size=36, num_heads=2, vocabulary_size=200))
    mesh = jax.sharding.AbstractMesh((1, 8, 1), ("data", "fsdp", "tensor"))
    with pytest.raises(UsageError, match="has 36 rows on axis 1, which mesh.fsdp=8 doesn't divide"):
        tree_shardings(shapes, mesh)


def test_rows_of_a_batch_are_split_over_data_and_fsdp_alone():
    mesh = jax.sharding.AbstractMesh((2, 2, 2), ("data", "fsdp", "tensor"))
    check_batch_size(4, 1, mesh)
    with pytest.raises(UsageError, match="a batch of 6 doesn't divide over mesh.data x mesh.fsdp = 4 parts"):
        check_batch_size(6, 1, mesh)


def test_heads_that_tensor_does_not_divide_are_refused():
    shapes = parameter_shapes(ModelConfig(num_layers=1, hidden_size=48, num_heads=6, vocabulary_size=200))
    mesh = jax.sharding.AbstractMesh((1, 1, 4), ("data", "fsdp", "tensor"))
    with pytest.raises(UsageError, match="attention/bias has 6 rows on axis 2, which mesh.tensor=4 doesn't divide"):
        tree_shardings(shapes, mesh)
