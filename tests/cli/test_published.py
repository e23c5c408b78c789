import pytest

from bert_jax.cli.published import BASE, HE_AND_XU, published_counts
from bert_jax.config.model import ModelConfig
from bert_jax.model.size import num_parameters


def test_the_figures_of_base_are_the_printed_ones():
    every_array, without_biases = published_counts(BASE)
    assert every_array.parameters == num_parameters(BASE, heads=False) == 109_482_240
    assert without_biases.terms["total without heads"] == num_parameters(BASE, heads=False)
    # As printed there: embeddings, attention, LayerNorm, feed-forward.
    assert without_biases.parameters == 23_835_648 + 28_311_552 + 38_400 + 56_623_104 == 108_808_704


def test_he_and_xus_figure_is_that_of_their_formula():
    n1, n2, n3, n5, n7, n8 = 30_522, 512, 128, 8, 2048, 8
    n6 = n2 // n5
    blocks = n8 * (n2**2 + 3 * n2 * n6 + 2 * n2 * n7 + 4 * n2 + 3 * n6 + n7)
    [figure] = published_counts(HE_AND_XU)
    assert figure.terms["total with heads"] == num_parameters(HE_AND_XU)
    assert figure.parameters == blocks + n1 * n2 + 2 * n2**2 + n2 * n3 + 6 * n2 + n1 == 35_945_786
    # By hand: 41,471,804 less these.
    assert list(figure.terms.values())[1:] == [-5_505_024, -10_752, -8_192, -1_024, -1_024, -2]


@pytest.mark.parametrize(
    "config",
    [
        BASE.replace(vocabulary_size=28_996),
        BASE.replace(max_positions=128),
        BASE.replace(positions="sinusoidal"),
        HE_AND_XU.replace(num_heads=4),
        HE_AND_XU.replace(feedforward_size=1024),
        ModelConfig.tiny(vocabulary_size=30_522),
    ],
)
def test_of_another_shape_there_are_none(config):
    assert published_counts(config) == []


def test_what_no_count_depends_on_is_no_matter():
    assert published_counts(BASE.replace(dropout=0.0, compute_dtype="bfloat16")) == published_counts(BASE)
