import jax
import pytest

from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import ExecutionConfig
from bert_jax.model.attention import FORMS
from bert_jax.model.memory import step_memory
from bert_jax.model.sharding import make_mesh
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
    formula = step_memory(
        model.replace(vocabulary_size=1024),
        ExecutionConfig(),
        parameters=0,
        rows=ROWS,
        length=LENGTH,
        predictions=slots,
    )
    assert formula.activations == pytest.approx(kept_bytes(config), rel=0.25)


def test_what_replacements_are_drawn_from_is_not_split():
    model = ModelConfig.base(vocabulary_size=30_522, discriminator=True, generator_divisor=3)
    sizes = {"parameters": 0, "rows": 64, "length": 512, "predictions": 77}
    alone, split = (step_memory(model, ExecutionConfig(), **sizes, tensor=tensor).outputs for tensor in (1, 4))
    assert split > alone / 4 + 64 * 77 * 30_522 * 8
    masked = model.replace(discriminator=False, generator_divisor=None)
    assert 4 * step_memory(masked, ExecutionConfig(), **sizes, tensor=4).outputs == alone


def test_saving_memory_saves_it_and_splitting_splits_it():
    sizes = {"parameters": 10**8, "rows": 64, "length": 512, "predictions": 77}
    model = ModelConfig.base(vocabulary_size=30_522)
    whole = step_memory(model, ExecutionConfig(), **sizes)
    dots, full = (step_memory(model, ExecutionConfig(remat=remat), **sizes) for remat in ("dots", "full"))
    assert whole.activations > 2 * dots.activations > 3 * full.activations
    parted = step_memory(model, ExecutionConfig(accumulation=4), **sizes)
    assert 4 * parted.activations == whole.activations and parted.gradients == 2 * whole.gradients
    split = step_memory(model, ExecutionConfig(), **sizes, split=4)
    assert (4 * split.state, split.activations) == (whole.state, whole.activations)
    assert (
        whole.state == 12 * 10**8 and step_memory(model, ExecutionConfig(), **sizes | {"predictions": 0}).outputs == 0
    )


def test_only_the_exact_form_has_probabilities_in_memory():
    sizes = {"parameters": 0, "rows": 8, "length": 512, "predictions": 77}
    model = ModelConfig.base(vocabulary_size=30_522, compute_dtype="bfloat16")
    exact = step_memory(model, ExecutionConfig(), **sizes)
    kernel = step_memory(model, ExecutionConfig(), **sizes, forms=(FORMS["tpu"], FORMS["tpu"]))
    blocks_and_one_in_the_backward_pass = 12 + 1
    probabilities = 8 * 12 * 512 * 512
    assert exact.activations - kernel.activations == blocks_and_one_in_the_backward_pass * probabilities * (4 + 2)
