"""The loss of a classification over many classes; on a CPU also without an array of all logits."""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from bert_jax.model.heads import TokenLogits
from bert_jax.model.kernels.platform import on_one_device
from bert_jax.model.kernels.products import product, product_of_transposed, product_with_transposed


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


_TOKENS_AT_ONCE = range(64, 512)
"""Numbers of tokens whose logits a CPU computes together. With 8,192 pieces, the logits of 256 tokens take 8 MB."""


def logits_at_once(count: int) -> int | None:
    """Number of tokens, of `count` predicted ones, whose logits `total_cross_entropy` computes at a time, and their
    gradient with them. None: it computes the logits of all tokens at once, without the gradient, as on all devices but
    one CPU, or if no number in _TOKENS_AT_ONCE divides `count`."""
    sizes = reversed(_TOKENS_AT_ONCE) if count and on_one_device("cpu") else ()
    return next((size for size in sizes if count % size == 0), None)


def total_cross_entropy(
    logits: TokenLogits, labels: Int[Array, "B P"], weights: Float[Array, "B P"]
) -> tuple[Float[Array, ""], Float[Array, ""]]:
    """The sums over all tokens of both results of `cross_entropy`, each token's times its weight.

    On one CPU the logits of some tokens at a time are computed, and their gradient with them, so that neither leaves
    the processor's cache: this halves the time of the head.
    """
    if (at_once := logits_at_once(labels.size)) is None:
        loss, hit = cross_entropy(logits.whole(), labels)
        return jnp.sum(loss * weights), jnp.sum(hit * weights)
    vectors = logits.vectors.reshape(-1, logits.vectors.shape[-1])
    return _total_by_parts(vectors, labels.reshape(-1), weights.reshape(-1), logits.table, logits.bias, at_once)


@functools.partial(jax.custom_vjp, nondiff_argnums=(5,))
def _total_by_parts(vectors, labels, weights, table, bias, at_once):
    return _forward_by_parts(vectors, labels, weights, table, bias, at_once)[0]


def _forward_by_parts(vectors, labels, weights, table, bias, at_once):
    """The sums, and the gradients of the first one. The gradient of the table is summed as its transpose, for which
    XLA transposes the vectors instead of the logits' gradient."""

    def add_part(sums, part):
        vectors, labels, weights = part
        logits = product_with_transposed(vectors, converted, jnp.float32) + bias
        (loss, hit), (_, exponentials, total) = loss_terms(logits, labels)
        gradient = exponentials * (weights / total)[:, None] - is_label(logits, labels) * weights[:, None]
        rounded = jax.lax.optimization_barrier(gradient.astype(vectors.dtype))
        parts = (
            jnp.sum(loss * weights),
            jnp.sum(hit * weights),
            product_of_transposed(vectors, rounded, jnp.float32),
            jnp.sum(gradient, axis=0),
        )
        return jax.tree.map(jnp.add, sums, parts), product(rounded, converted, vectors.dtype)

    converted = table.astype(vectors.dtype)
    parts = [each.reshape(-1, at_once, *each.shape[1:]) for each in (vectors, labels, weights)]
    zeros = jnp.zeros(()), jnp.zeros(()), jnp.zeros(table.shape[::-1]), jnp.zeros(bias.shape)
    (loss, hit, of_table, of_bias), of_vectors = jax.lax.scan(add_part, zeros, parts)
    return (loss, hit), (of_vectors.reshape(vectors.shape), of_table, of_bias)


def _backward_by_parts(at_once, residuals, gradients):
    of_vectors, of_table, of_bias = residuals
    scaled = (of_vectors * gradients[0]).astype(of_vectors.dtype)
    return scaled, None, None, (of_table * gradients[0]).T, of_bias * gradients[0]


_total_by_parts.defvjp(_forward_by_parts, _backward_by_parts)
