import jax
import pytest

from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import ExecutionConfig
from bert_jax.config.phase import Phase
from bert_jax.model.bert import parameter_shapes
from bert_jax.model.embeddings import padded_vocabulary_size
from bert_jax.model.kernels import attention_form, total_cross_entropy
from bert_jax.model.memory import step_memory
from bert_jax.model.sharding import MESH_AXES, make_mesh
from bert_jax.pretraining.objective import pretraining_trainer
from bert_jax.training.batch import synthetic_batch
from bert_jax.training.step import example_keys

LENGTH, ROWS = 64, 4


def kept_bytes(config) -> int:
    """What jax.vjp keeps of a step's forward pass beside the parameters, read off its trace."""
    trainer = pretraining_trainer(config, make_mesh(config.mesh), 1024, mask_id=4)
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
def test_the_formula_counts_what_the_traced_step_keeps(tiny_config, changes):
    model = ModelConfig.tiny(num_layers=12, hidden_size=128, num_heads=4, **changes)
    slots = tiny_config.objective.slots(LENGTH)
    phases = (tiny_config.phases[0].replace(length=32, batch_size=ROWS),)
    predict = {"predict": "replaced", "pair": "none"} if model.discriminator else {}
    config = tiny_config.replace(model=model, objective=tiny_config.objective.replace(**predict), phases=phases)
    sized, whole = model.replace(vocabulary_size=1024), phases[0].replace(length=LENGTH)
    formula = step_memory(config.execution, sized, make_mesh(config.mesh), whole, predictions=slots, packed=1)
    assert formula.activations == pytest.approx(kept_bytes(config), rel=0.25)


BASE = ModelConfig.base(vocabulary_size=30_522, compute_dtype="float32")


def memory_of(model=BASE, rows=64, mesh=(1, 1, 1), predictions=77, chip="cpu", **execution):
    """Of a step on rows of 512 tokens."""
    devices, phase = jax.sharding.AbstractMesh(mesh, MESH_AXES), Phase(steps=1, length=512, batch_size=rows)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(attention_form, "platform", lambda: chip)
        patched.setattr(total_cross_entropy, "on_one_device", lambda kind: kind == chip and mesh == (1, 1, 1))
        return step_memory(ExecutionConfig(**execution), model, devices, phase, predictions=predictions, packed=1)


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
    assert whole.state == 12 * sum(leaf.size for leaf in jax.tree.leaves(parameter_shapes(BASE)))
    assert memory_of(predictions=0).outputs == 0


def test_only_the_exact_form_has_probabilities_in_memory():
    model = BASE.replace(compute_dtype="bfloat16")
    exact, kernel = (memory_of(model, rows=8, chip="tpu", attention=form) for form in ("exact", "tpu"))
    blocks_and_one_in_the_backward_pass = 12 + 1
    probabilities = 8 * 12 * 512 * 512
    assert exact.activations - kernel.activations == blocks_and_one_in_the_backward_pass * probabilities * (4 + 2)
