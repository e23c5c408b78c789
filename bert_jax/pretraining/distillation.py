"""Distillation: a student learns the predictions (Hinton et al. 2015) or the self-attention relations (MiniLMv2, Wang
et al. 2021) of a frozen teacher."""

import math
from collections.abc import Mapping
from typing import Any, cast

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float, Key

from bert_jax.config.model import ModelConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.training import Phase
from bert_jax.model.attention import INTERMEDIATES
from bert_jax.model.attention_pattern import AttentionPattern
from bert_jax.model.bert import BertForPretraining, Parameters, init
from bert_jax.model.embeddings import padded_vocabulary_size, vocabulary_size
from bert_jax.model.heads import MASKED_OUT, TokenLogits
from bert_jax.model.kernels.products import heads_first, inner_products
from bert_jax.model.sharding import num_shards, row_shards
from bert_jax.model.size import Memory, encoder_flops, flops_at_all_tokens, forward_flops, num_parameters, step_memory
from bert_jax.pretraining.masking import Masked
from bert_jax.run.measurement import Mean, Means

TEACHER_LOSS, TEACHER_AGREEMENT = "teacher_loss", "teacher_agreement"
"""Names of the measurements: the divergence from the teacher in nats and, if predictions are learned, the share of
masked tokens for which both models' likeliest piece is the same."""
_F32 = 4
_PREDICTION_ARRAYS, _RELATION_ARRAYS = 5, 4
"""Float32 arrays that a loss holds in memory at once. For predictions: the logits and log-probabilities of both models,
and a gradient. For a relation: the log-probabilities of both models, their divergence, and a gradient."""


class Teacher:
    """The teacher's network and the losses of its student. The teacher's parameters are stored in the training's state,
    so that a run goes on without the teacher's files. No step changes them, and the optimizer has no slots for them."""

    def __init__(self, config: RunConfig):
        """`config` must have `distillation.settings`."""
        assert config.distillation.settings, "with_teacher sets it"
        self._distillation, self._student, self._execution = config.distillation, config.model, config.execution
        model = ModelConfig.model_validate_json(config.distillation.settings)
        self.model = model.replace(compute_dtype=config.model.compute_dtype)
        """The model, up to the layer whose relations are learned."""
        self.predicts = config.distillation.kind == "predictions"
        """Whether predictions are learned, and not relations."""
        self.mutable = [] if self.predicts else [INTERMEDIATES]
        """The collections of the student's network that `measure` reads."""
        # Nothing is kept for a backward pass; a loop over the blocks compiles fast.
        self._network = BertForPretraining(self.model, config.execution.replace(remat="none", unroll=1))
        self.measurements = (TEACHER_LOSS, TEACHER_AGREEMENT) if self.predicts else (TEACHER_LOSS,)

    @property
    def description(self) -> str:
        """What is learned, in words."""
        learned, model = self._distillation, self.model
        what = f"predictions at temperature {learned.temperature:g}"
        if not self.predicts:
            what = f"relations of layer {model.num_layers - 1} in {learned.relation_heads} heads"
        return (
            f"teacher ({what}, weight {learned.weight:g}; {model.num_layers} layers of width {model.hidden_size}, "
            f"{num_parameters(model, shapes=self.own_parts(jax.eval_shape(self.init, jax.random.key(0)))):,} frozen "
            "parameters)"
        )

    def init(self, key: Key[Array, ""]) -> Parameters:
        """Random parameters in the teacher's shapes."""
        return self.own_parts(init(self.model, key))

    def own_parts(self, params: Parameters) -> Parameters:
        """The used parts of `params`, the parameters of a whole model: the encoder and, for predictions, the head."""
        encoder = {name: part for name, part in params["bert"].items() if name != "pooler"}
        return {"bert": encoder} | ({"masked_lm": params["masked_lm"]} if self.predicts else {})

    def count(self, masked: Masked, weights: Float[Array, "B T"]) -> Float[Array, ""]:
        """The number of tokens that the loss is a mean over: the masked ones, or all. `weights`: 1 for real tokens."""
        return jnp.sum(masked.weights if self.predicts else weights)

    def measure(
        self,
        params: Parameters,
        masked: Masked,
        weights: Float[Array, "B T"],
        logits: Float[Array, "B P V"] | None,
        variables: Mapping[str, Any],
    ) -> Means:
        """The divergence of the student from the teacher, which reads the same masked rows without dropout. `logits`:
        the student's logits, if predictions are learned. `variables`: the student's collections that `mutable` names,
        if relations are learned."""
        given = {"params": params}, masked.tokens
        if self.predicts:
            of_teacher, _ = cast(tuple[TokenLogits, None], self._network.apply(*given, masked.places, method="predict"))
            assert logits is not None
            size = vocabulary_size(self.model)
            theirs, ours = of_teacher.whole()[..., :size], logits[..., :size]
            loss = prediction_divergence(theirs, ours, self._distillation.temperature)
            agree = (jnp.argmax(theirs, axis=-1) == jnp.argmax(ours, axis=-1)).astype(jnp.float32)
            return {TEACHER_LOSS: Mean.of(loss, masked.weights), TEACHER_AGREEMENT: Mean.of(agree, masked.weights)}
        _, of_layer = self._network.apply(*given, method="encode", mutable=self.mutable)
        pattern, heads = AttentionPattern.of(masked.tokens, causal=False), self._distillation.relation_heads
        pairs = zip(_projected(of_layer), _projected(variables), strict=True)
        # Each of the three is computed again in the backward pass, so that only one of them is in memory.
        losses = [
            jax.checkpoint(relation_divergence, static_argnums=(2,))(*pair, heads, pattern.admitted()) for pair in pairs
        ]
        return {TEACHER_LOSS: Mean.of(sum(losses[1:], start=losses[0]), weights)}

    def flops(self, length: int, predictions: int) -> tuple[float, float]:
        """FLOPs that a teacher adds to a step of one sequence: those of the teacher's forward pass, and those that it
        adds to the student, whose last block is computed at all tokens if relations are learned."""
        if self.predicts:
            return forward_flops(self.model, length, predictions), 0.0
        student, relations = self._student, 3 * 2 * length**2  # per component: three products of all pairs of tokens
        queries = (2 * length * self.model.hidden_size + relations) * self.model.hidden_size
        of_teacher = encoder_flops(self.model, length, last_queries=0) + queries
        return of_teacher, 3 * (flops_at_all_tokens(student, length, predictions) + relations * student.hidden_size)

    def memory(self, memory: Memory, phase: Phase, mesh: Mesh, predictions: int, packed: int) -> Memory:
        """Adds the teacher's parameters, the arrays of one of its blocks, and the arrays of the loss to `memory`, the
        bytes of a step of `phase` on one device by formula."""
        one_block, execution = self.model.replace(num_layers=1), self._execution.replace(remat="full")
        frozen = optax.set_to_zero()
        of_block = step_memory(execution, one_block, mesh, phase, frozen, predictions=predictions, packed=packed)
        parameters = sum(leaf.size for leaf in jax.tree.leaves(jax.eval_shape(self.init, jax.random.key(0))))
        rows = -(-phase.batch_size // (row_shards(mesh) * self._execution.accumulation))
        numbers = _RELATION_ARRAYS * self._distillation.relation_heads * phase.length**2
        if self.predicts:
            numbers = _PREDICTION_ARRAYS * predictions * padded_vocabulary_size(self.model)
        return memory._replace(
            state=memory.state + _F32 * parameters // num_shards(mesh, ("fsdp", "tensor")),
            activations=memory.activations + of_block.activations,
            outputs=memory.outputs + _F32 * rows * numbers // num_shards(mesh, "tensor"),
        )


def _projected(variables: Mapping[str, Any]) -> tuple[Float[Array, "B T H K"], ...]:
    """The queries, keys and values of the last layer of a network, from its collections."""
    return variables[INTERMEDIATES]["bert"]["encoder"]["projected"][0]


def prediction_divergence(
    theirs: Float[Array, "B P V"], ours: Float[Array, "B P V"], temperature: float
) -> Float[Array, "B P"]:
    """The Kullback-Leibler divergence in nats of a student's distribution from its teacher's, both from logits divided
    by the temperature. It is multiplied by the square of the temperature, so that gradients keep their size (Hinton et
    al. 2015, section 2)."""
    first, second = (jax.nn.log_softmax(logits / temperature) for logits in (theirs, ours))
    return temperature**2 * jnp.sum(jnp.exp(first) * (first - second), axis=-1)


def relation_divergence(
    theirs: Float[Array, "B T H K"], ours: Float[Array, "B T G J"], heads: int, admitted: Array
) -> Float[Array, "B T"]:
    """For each token, the divergence in nats of the student's relations of queries, keys or values from the teacher's.
    It is the mean over `heads` relation heads, into which the vectors of both models are divided anew (Wang et al.
    2021, equations 2 to 5).

    The relation of a token is a softmax over the tokens of its sequence. Its logits are the inner products of the
    token's vector with theirs, divided by the root of the vectors' size. `admitted`, [B, #T, T], is True for the tokens
    of the same sequence.
    """

    def log_relations(x: Float[Array, "B T H K"]) -> Float[Array, "B R T T"]:
        parted = heads_first(x.reshape(*x.shape[:2], heads, -1))
        scores = inner_products(parted, parted, jnp.float32) / math.sqrt(parted.shape[-1])
        return jax.nn.log_softmax(jnp.where(admitted[:, None], scores, MASKED_OUT))

    first, second = log_relations(jax.lax.stop_gradient(theirs)), log_relations(ours)
    return jnp.mean(jnp.sum(jnp.exp(first) * (first - second), axis=-1), axis=1)
