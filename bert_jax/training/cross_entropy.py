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
    largest = jnp.max(logits, axis=-1)
    log_sum = largest + jnp.log(jnp.sum(jnp.exp(logits - largest[..., None]), axis=-1))
    of_label = jnp.take_along_axis(logits, labels[..., None], axis=-1)[..., 0]
    return (log_sum - of_label, (of_label >= largest).astype(jnp.float32)), (logits, labels, log_sum)


def _backward(residuals, gradients):
    logits, labels, log_sum = residuals
    probabilities = jnp.exp(logits - log_sum[..., None])
    is_label = labels[..., None] == jnp.arange(logits.shape[-1])
    return (probabilities - is_label) * gradients[0][..., None], None


cross_entropy.defvjp(_forward, _backward)
