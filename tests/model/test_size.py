import jax
import numpy as np
import pytest
from token_rows import tokens_of

from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import ExecutionConfig
from bert_jax.config.training import OptimizerConfig, Phase
from bert_jax.model.bert import BertForPretraining, Discriminator, generator_parameters, parameter_shapes
from bert_jax.model.embeddings import padded_vocabulary_size
from bert_jax.model.kernels import attention_form, cross_entropy
from bert_jax.model.sharding import MESH_AXES, make_mesh
from bert_jax.model.size import forward_flops, model_parts, num_parameters, step_memory, train_flops
from bert_jax.pretraining.objective import pretraining_trainer
from bert_jax.training.batch import synthetic_batch
from bert_jax.training.optimizer import make_optimizer
from bert_jax.training.step import example_keys


def encoder_size(config):
    """The number of parameters of the encoder with its pooler."""
    return sum(part.copies * part.parameters for part in model_parts(config) if part.in_encoder)


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
        (ModelConfig.base(vocabulary_size=30_522, discriminator=True, generator_divisor=3), 108_891_648, 119_386_427),
        (ModelConfig.base(vocabulary_size=50_265, num_segments=1, first_position=2), 124_645_632, None),
        (ModelConfig.base(vocabulary_size=30_000, embedding_size=128, shared_layers=True), 11_683_584, None),
        (ModelConfig.modern(vocabulary_size=50_368), None, 149_655_232 + 768 * 768 + 768 + 2 * 768 + 2),
    ],
)
def test_the_published_models_have_the_published_number_of_parameters(config, encoder, with_heads):
    """RoBERTa, ALBERT and ModernBERT come last; the published ModernBERT has neither pooler nor head of pairs."""
    assert encoder is None or encoder_size(config) == encoder
    assert with_heads is None or num_parameters(config) == with_heads


@pytest.mark.parametrize("positions", ["learned", "sinusoidal"])
def test_every_parameter_is_in_one_part(positions):
    config = ModelConfig.tiny(vocabulary_size=256, positions=positions)  # a size that needs no padding
    parts = model_parts(config)
    assert sum(part.copies * part.parameters for part in parts) == num_parameters(config)
    assert num_parameters(config) == sum(leaf.size for leaf in jax.tree.leaves(parameter_shapes(config)))


SIZES = {"num_layers": 1, "hidden_size": 256, "num_heads": 4, "vocabulary_size": 1024, "max_positions": 64}
REPLACED = {"embedding_size": 128, "discriminator": True, "generator_divisor": 2}


@pytest.mark.parametrize("slots, settings", [(10, {}), (64, {"causal": True}), (10, REPLACED)])
def test_flops_by_formula_are_those_of_the_compiled_forward_pass(slots, settings):
    """Of a discriminator with those of its generator."""
    config, batch, length = ModelConfig(**SIZES, **settings), 4, 64
    # Next tokens are predicted everywhere.
    wanted = None if config.causal else jax.ShapeDtypeStruct((batch, slots), "int32")

    def computed(params, tokens, wanted):
        if not config.discriminator:
            return BertForPretraining(config).apply({"params": params}, tokens, wanted)
        generator = {"params": generator_parameters(params)}
        filled = BertForPretraining(config.generator).apply(generator, tokens, wanted)[0]
        return filled, Discriminator(config).apply({"params": params}, tokens)

    tokens = tokens_of(np.zeros((batch, length)))
    compiled = jax.jit(computed).lower(parameter_shapes(config), tokens, wanted).compile()
    counted = compiled.cost_analysis()["flops"] / batch
    assert forward_flops(config, length, slots) == pytest.approx(counted, rel=0.1)  # the rest is elementwise
    assert train_flops(config, length, slots) == 3 * forward_flops(config, length, slots)


def test_notes_without_biases_and_pooler_count_the_same_base():
    ours = encoder_size(ModelConfig.base(vocabulary_size=30_522))
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


LENGTH, ROWS = 64, 4


def kept_bytes(config) -> int:
    """What jax.vjp keeps of a step's forward pass beside the parameters, read off its trace."""
    trainer = pretraining_trainer(config, make_mesh(config.mesh), 1024)
    batch, objective = jax.device_put(synthetic_batch(ROWS, LENGTH, 1024)), trainer.objective
    targets = jax.eval_shape(lambda: objective.targets(batch, example_keys(0, "targets", 0, batch.ordinal)))

    def backward(params, targets, keys):
        def loss(params):
            means = objective.measure(params, targets, keys)
            return sum(means[name].total for name in objective.losses)

        return jax.vjp(loss, params)[1]

    params = trainer.state_shapes.params
    keys = jax.eval_shape(lambda: example_keys(0, "dropout", 0, batch.ordinal))
    kept = jax.tree.leaves(jax.eval_shape(backward, params, targets, keys))
    of_parameters = sum(leaf.size * 4 for leaf in jax.tree.leaves(params))
    return sum(leaf.size * leaf.dtype.itemsize for leaf in kept) - of_parameters


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"compute_dtype": "bfloat16"},
        {"dropout": 0.0, "attention_dropout": 0.0},
        {"discriminator": True, "generator_divisor": 2},
    ],
)
@pytest.mark.long(first=1)
def test_the_formula_counts_what_the_traced_step_keeps(tiny_config, changes):
    model = ModelConfig.tiny(num_layers=12, hidden_size=128, num_heads=4, **changes)
    slots = tiny_config.objective.slots(LENGTH)
    phases = (tiny_config.phases[0].replace(length=32, batch_size=ROWS),)
    predict = {"predict": "replaced", "pair": "none"} if model.discriminator else {}
    config = tiny_config.replace(model=model, objective=tiny_config.objective.replace(**predict), phases=phases)
    sized, whole = model.replace(vocabulary_size=1024), phases[0].replace(length=LENGTH)
    mesh, optimizer = make_mesh(config.mesh), make_optimizer(config.optimizer)
    formula = step_memory(config.execution, sized, mesh, whole, optimizer, predictions=slots, packed=1)
    assert formula.activations == pytest.approx(kept_bytes(config), rel=0.25)


BASE = ModelConfig.base(vocabulary_size=30_522, compute_dtype="float32")


def memory_of(model=BASE, rows=64, mesh=(1, 1, 1), predictions=77, chip="cpu", optimizer="adamw", **execution):
    """Of a step on rows of 512 tokens."""
    optimizer = make_optimizer(OptimizerConfig(name=optimizer))
    devices, phase = jax.sharding.AbstractMesh(mesh, MESH_AXES), Phase(steps=1, length=512, batch_size=rows)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(attention_form, "platform", lambda: chip)
        patched.setattr(cross_entropy, "on_one_device", lambda kind: kind == chip and mesh == (1, 1, 1))
        execution = ExecutionConfig(**execution)
        return step_memory(execution, model, devices, phase, optimizer, predictions=predictions, packed=1)


def test_the_state_has_the_moments_that_the_optimizer_keeps():
    """Muon keeps one moment of the matrices of blocks, all others keep two."""
    shapes = parameter_shapes(BASE)
    numbers = sum(leaf.size for leaf in jax.tree.leaves(shapes))
    matrices = 12 * (4 * 768 * 768 + 2 * 768 * 3072)
    for name, kept in (("adamw", 3 * numbers), ("lamb", 3 * numbers), ("muon", 3 * numbers - matrices)):
        assert memory_of(optimizer=name).state == pytest.approx(4 * kept, abs=100)


def test_what_replacements_are_drawn_from_is_not_split():
    model = BASE.replace(discriminator=True, generator_divisor=3)
    alone, split = (memory_of(model, mesh=(1, 1, tensor)).outputs for tensor in (1, 4))
    assert split > alone / 4 + 64 * 77 * 30_522 * 8
    assert 4 * memory_of(mesh=(1, 1, 4)).outputs == memory_of(chip="tpu").outputs


def test_on_one_cpu_the_logits_of_some_tokens_exist_at_a_time():
    table = padded_vocabulary_size(BASE) * 768 * 4
    whole, by_parts = (memory_of(chip=chip).outputs - table for chip in ("tpu", "cpu"))
    assert whole == 64 * 77 // 448 * by_parts


def test_saving_memory_saves_it_and_splitting_splits_it():
    whole = memory_of()
    dots, full = (memory_of(remat=remat) for remat in ("dots", "full"))
    assert whole.activations > 2 * dots.activations > 3 * full.activations
    parted = memory_of(accumulation=4)
    assert 4 * parted.activations == whole.activations and parted.gradients == 2 * whole.gradients
    split = memory_of(rows=256, mesh=(1, 4, 1))
    assert (4 * split.state, split.activations) == (whole.state, whole.activations)
    assert whole.state == 12 * sum(leaf.size for leaf in jax.tree.leaves(parameter_shapes(BASE))) + 4  # its count
    assert memory_of(predictions=0).outputs == 0


def test_only_the_exact_form_has_probabilities_in_memory():
    model = BASE.replace(compute_dtype="bfloat16")
    exact, kernel = (memory_of(model, rows=8, chip="tpu", attention=form) for form in ("exact", "tpu"))
    blocks_and_one_in_the_backward_pass = 12 + 1
    probabilities = 8 * 12 * 512 * 512
    assert exact.activations - kernel.activations == blocks_and_one_in_the_backward_pass * probabilities * (4 + 2)
