import jax
import pytest

from bert_jax.config.model import ModelConfig
from bert_jax.model.bert import BertForPretraining, parameter_shapes
from bert_jax.model.size import num_parameters, train_flops


@pytest.mark.parametrize(
    "config, encoder, with_heads",
    [
        (ModelConfig.tiny(vocabulary_size=30_522), 4_385_920, 4_433_468),
        (ModelConfig.base(vocabulary_size=30_522), 109_482_240, 110_106_428),
        (ModelConfig.base(vocabulary_size=28_996), 108_310_272, 108_932_934),
        (ModelConfig.base(vocabulary_size=119_547), 177_853_440, 178_566_653),
        (ModelConfig.base(vocabulary_size=21_128), 102_267_648, 102_882_442),
        (ModelConfig.large(vocabulary_size=30_522), 335_141_888, 336_226_108),
    ],
)
def test_the_published_models_have_the_published_number_of_parameters(config, encoder, with_heads):
    assert num_parameters(config, heads=False) == encoder
    assert num_parameters(config) == with_heads


def test_flops_by_formula_are_those_of_the_compiled_forward_pass():
    config = ModelConfig(num_layers=1, hidden_size=256, num_heads=4, vocabulary_size=1024, max_positions=64)
    params, batch, length, slots = parameter_shapes(config), 4, 64, 10
    ids = jax.ShapeDtypeStruct((batch, length), "int32")
    mask = jax.ShapeDtypeStruct((batch, length), "bool")
    positions = jax.ShapeDtypeStruct((batch, slots), "int32")
    compiled = jax.jit(BertForPretraining(config).apply).lower({"params": params}, ids, ids, mask, positions).compile()
    counted = compiled.cost_analysis()["flops"] / batch
    assert train_flops(config, length, slots) / 3 == pytest.approx(counted, rel=0.1)  # the rest is elementwise
