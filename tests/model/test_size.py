import jax
import numpy as np
import pytest
from token_rows import tokens_of

from bert_jax.config.model import ModelConfig
from bert_jax.model.bert import BertForPretraining, Discriminator, generator_parameters, parameter_shapes
from bert_jax.model.size import forward_flops, model_parts, num_parameters, train_flops


@pytest.mark.parametrize(
    "config, encoder, with_heads",
    [
        (ModelConfig.tiny(vocabulary_size=30_522), 4_385_920, 4_433_468),
        (ModelConfig.base(vocabulary_size=30_522), 109_482_240, 110_106_428),
        (ModelConfig.base(vocabulary_size=28_996), 108_310_272, 108_932_934),
        (ModelConfig.base(vocabulary_size=119_547), 177_853_440, 178_566_653),
        (ModelConfig.base(vocabulary_size=21_128), 102_267_648, 102_882_442),
        (ModelConfig.large(vocabulary_size=30_522), 335_141_888, 336_226_108),
        # google/electra-base-discriminator; with its head 109,483,009, and a generator of 9,903,418 beside it
        (ModelConfig.base(vocabulary_size=30_522, discriminator=True), 108_891_648, 109_483_009),
        (
            ModelConfig.base(vocabulary_size=30_522, discriminator=True, generator_divisor=3),
            108_891_648,
            119_386_427,
        ),
        (ModelConfig.base(vocabulary_size=50_265, num_segments=1, first_position=2), 124_645_632, None),
        (ModelConfig.base(vocabulary_size=30_000, embedding_size=128, shared_layers=True), 11_683_584, None),
        (ModelConfig.modern(vocabulary_size=50_368), None, 149_655_232 + 768 * 768 + 768 + 2 * 768 + 2),
    ],
)
def test_the_published_models_have_the_published_number_of_parameters(config, encoder, with_heads):
    """RoBERTa, ALBERT and ModernBERT come last; the published ModernBERT has neither pooler nor head of pairs."""
    assert encoder is None or num_parameters(config, heads=False) == encoder
    assert with_heads is None or num_parameters(config) == with_heads


@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
def test_every_parameter_is_in_one_part(positions):
    config = ModelConfig.tiny(vocabulary_size=256, positions=positions)  # a size that needs no padding
    counted = model_parts(config)
    assert sum(part.copies * part.parameters for part in counted) == num_parameters(config)
    assert num_parameters(config) == sum(leaf.size for leaf in jax.tree.leaves(parameter_shapes(config)))
    assert [part.name for part in counted if part.group == "embeddings"] == [
        "word table",
        "segment table",
        *(["position table"] if positions == "learned" else []),
        "LayerNorm",
    ]
    assert {part.copies for part in counted if part.group == "block"} == {2}


@pytest.mark.parametrize("slots", [10, 64])
def test_flops_by_formula_are_those_of_the_compiled_forward_pass(slots):
    everywhere = slots == 64  # as next tokens are predicted
    config = ModelConfig(
        num_layers=1, hidden_size=256, num_heads=4, vocabulary_size=1024, max_positions=64, causal=everywhere
    )
    params, batch, length = parameter_shapes(config), 4, 64
    tokens = tokens_of(np.zeros((batch, length)))
    wanted = None if everywhere else jax.ShapeDtypeStruct((batch, slots), "int32")
    compiled = jax.jit(BertForPretraining(config).apply).lower({"params": params}, tokens, wanted).compile()
    counted = compiled.cost_analysis()["flops"] / batch
    assert forward_flops(config, length, slots) == pytest.approx(counted, rel=0.1)  # the rest is elementwise
    assert train_flops(config, length, slots) == 3 * forward_flops(config, length, slots)


def test_flops_of_a_discriminator_and_its_generator():
    config = ModelConfig(
        num_layers=1,
        hidden_size=256,
        embedding_size=128,
        num_heads=4,
        vocabulary_size=1024,
        max_positions=64,
        discriminator=True,
        generator_divisor=2,
    )
    batch, length, slots = 4, 64, 10
    wanted = jax.ShapeDtypeStruct((batch, slots), "int32")

    def both(params, tokens, wanted):
        generator = {"params": generator_parameters(params)}
        filled = BertForPretraining(config.generator).apply(generator, tokens, wanted)[0]
        return filled, Discriminator(config).apply({"params": params}, tokens)

    compiled = jax.jit(both).lower(parameter_shapes(config), tokens_of(np.zeros((batch, length))), wanted).compile()
    counted = compiled.cost_analysis()["flops"] / batch
    assert forward_flops(config, length, slots) == pytest.approx(counted, rel=0.1)


def test_notes_without_biases_and_pooler_count_the_same_base():
    ours = num_parameters(ModelConfig.base(vocabulary_size=30_522), heads=False)
    biases, pooler = 12 * (4 * 768 + 3072 + 768), 590_592
    # As printed there: embeddings, attention, LayerNorm, feed-forward.
    assert ours - biases - pooler == 23_835_648 + 28_311_552 + 38_400 + 56_623_104 == 108_808_704


def test_he_and_xu_count_the_same_model_by_their_formula():
    """He and Xu (2020), section 7: they count query, key and value of one of the n5 heads, and two output biases a
    block and two LayerNorms fewer; the bias of their NSP head is eta."""
    ours = num_parameters(ModelConfig.medium(vocabulary_size=30_522, max_positions=128))
    n1, n2, n3, n5, n7, n8 = 30_522, 512, 128, 8, 2048, 8
    n6 = n2 // n5
    blocks = n8 * (n2**2 + 3 * n2 * n6 + 2 * n2 * n7 + 4 * n2 + 3 * n6 + n7)
    theirs = blocks + n1 * n2 + 2 * n2**2 + n2 * n3 + 6 * n2 + n1
    other_heads, output_biases, norms, nsp_bias = n8 * (n5 - 1) * 3 * (n2 + 1) * n6, n8 * 2 * n2, 2 * 2 * n2, 2
    assert theirs == ours - other_heads - output_biases - norms - nsp_bias == 35_945_786
