"""The loss of a classification over many classes."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int


@jax.custom_vjp
def cross_entropy(
    logits: Float[Array, "*B C"], labels: Int[Array, "*B"]
) -> tuple[Float[Array, "*B"], Float[Array, "*B"]]:
    """Minus the log-probability of each label in nats, and 1 if no class is likelier than the label, else 0.

    `logits` are float32. The gradient is written out because automatic differentiation would keep the exponentials and
    read the logits, the largest array of a small model's step, three more times.
    """
    return _forward(logits, labels)[0]


def _forward(logits, labels):
    results, (largest, _, total) = loss_terms(logits, labels)
    return results, (logits, labels, largest + jnp.log(total))


def loss_terms(logits, labels):
    """Both results of `cross_entropy`; and the largest logit of each row, exp(logits - largest) and their sum."""
    largest = jnp.max(logits, axis=-1)
    exponentials = jnp.exp(logits - largest[..., None])
    total = jnp.sum(exponentials, axis=-1)
    of_label = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
    loss, hit = largest + jnp.log(total) - of_label, (of_label >= largest).astype(jnp.float32)
    return (loss, hit), (largest, exponentials, total)


def _backward(residuals, gradients):
    logits, labels, log_sum = residuals
    probabilities = jnp.exp(logits - log_sum[..., None])
    return (probabilities - is_label(logits, labels)) * gradients[0][..., None], None


def is_label(logits, labels):
    """Whether each class is its row's label, [*B, C]."""
    return labels[..., None] == jnp.arange(logits.shape[-1])


cross_entropy.defvjp(_forward, _backward)
