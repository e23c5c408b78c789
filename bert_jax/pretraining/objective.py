"""Objectives of pretraining: masked tokens, with or without a question about sentence pairs (Devlin et al. 2019,
section 3.1); next tokens (Radford et al. 2018, section 3.1), also in both directions (Peters et al. 2018, section 3.1);
and replaced tokens (Clark et al. 2020, section 2)."""

import copy
import functools
import math
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import optax
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int, Key

from bert_jax.config.fitted import FittedConfig
from bert_jax.config.prediction import (
    BOTH_NEIGHBOURS,
    MASKED_TOKENS,
    NEXT_TOKENS,
    PAIR_QUESTIONS,
    PERMUTED_TOKENS,
    REPLACED_SHARE,
    REPLACED_TOKENS,
    TAGS,
    UNIVERSAL_TAGS,
    Question,
)
from bert_jax.config.run import RunConfig
from bert_jax.config.training import Phase, TrainedPart
from bert_jax.layout import Tokens
from bert_jax.model.attention import at_places
from bert_jax.model.bert import (
    DISENTANGLED_TABLES,
    TEACHER,
    BertForPretraining,
    Discriminator,
    Encoded,
    Parameters,
    generator_parameters,
    init,
)
from bert_jax.model.dropout import split
from bert_jax.model.embeddings import vocabulary_size
from bert_jax.model.heads import TaskHead
from bert_jax.model.kernels.cross_entropy import cross_entropy, total_cross_entropy
from bert_jax.model.parameters import trained_parameters
from bert_jax.model.sharding import on_mesh
from bert_jax.model.size import FORWARD_SHARE, Memory, flops_at_all_tokens, step_memory, train_flops
from bert_jax.pretraining.distillation import TEACHER_LOSS, Teacher
from bert_jax.pretraining.masking import (
    Masked,
    MaskingKeys,
    draw_tokens,
    mask_sequences,
    neighbours,
    next_tokens,
    order_of_prediction,
    replace_tokens,
)
from bert_jax.run.measurement import Mean, Means
from bert_jax.system.errors import Setting, UsageError
from bert_jax.text.vocabulary import MASK, SPECIAL_PIECES, Vocabulary
from bert_jax.training.batch import Batch, synthetic_batch
from bert_jax.training.optimizer import make_optimizer
from bert_jax.training.step import Moment, Objective, example_keys
from bert_jax.training.trainer import Trainer

if TYPE_CHECKING:
    from bert_jax.run.opened_models import OpenedModels


class PretrainingTargets(NamedTuple):
    """The model's input for a batch, with labels and weights."""

    masked: Masked
    """The rows with their replaced tokens, and the places and labels of the tokens to predict."""
    pair_label: Int[Array, "B N"]
    """The answer to the question about each sequence's pair of segments."""
    pair_weight: Float[Array, "B N"]
    """1 for a real sequence, 0 for a filler."""
    drawing_keys: Key[Array, "B N"] | None = None
    """Each sequence's key for drawing replacements; None if no replacements are drawn from predictions."""
    ranks: Int[Array, "B T"] | None = None
    """Each token's place in the order of prediction, -1 for a token that isn't predicted; None if all tokens are
    predicted independently."""
    tags: Int[Array, "B T"] | None = None
    """The number of the tag of the word that begins with each token, UNTAGGED for other tokens; None if no tags are
    asked for."""


class MaskedTokens(Objective):
    """Masked tokens and, optionally, sentence pairs and a teacher. The loss is the weighted sum of the means over the
    global batch."""

    token_question = MASKED_TOKENS
    """The question whose labels are tokens."""
    main_question = MASKED_TOKENS
    """The question whose accuracy is the run's score."""
    _trains: TrainedPart = "all"

    def __init__(self, config: RunConfig, mask_id: int):
        """`config` must have the model's vocabulary size and the settings of its teacher."""
        self.model, self._config, self._mask_id = config.model, config, mask_id
        self.pair_question = PAIR_QUESTIONS[config.objective.pair]
        self.teacher = Teacher(config) if config.teacher else None
        questions = self.questions
        self.losses = {question.loss: weight for question, weight in questions.items()}
        self.measurements = (*self.losses, *(question.accuracy for question in questions))
        self.headings = {
            question.accuracy: question.label if number else f"accuracy: {question.label}"
            for number, question in enumerate(questions)
        }
        if self.teacher:
            self.losses[TEACHER_LOSS], self.headings[TEACHER_LOSS] = config.distillation.weight, "teacher loss"
            self.measurements += self.teacher.measurements
        self.network = BertForPretraining(self.model.generator or self.model, config.execution)
        """The Flax module of the predictions."""

    @property
    def questions(self) -> dict[Question, float]:
        """The questions of training, each with the weight of its loss."""
        weights = dict.fromkeys(filter(None, (self.token_question, self.pair_question)), 1.0)
        return weights | ({self.token_question: 1 - self._config.distillation.weight} if self.teacher else {})

    @property
    def description(self) -> str:
        """The questions by name, with weights other than 1, as in: MLM (masked-language), NSP (next-sentence)."""
        named = (
            f"{question.label} ({question.title}{f', weight {weight:g}' if weight != 1 else ''})"
            for question, weight in self.questions.items()
        )
        of_teacher = [self.teacher.description] if self.teacher else []
        return ", ".join([*named, *of_teacher])

    def in_phase(self, phase: int) -> "MaskedTokens":
        """The objective with the phase's base of rotary positions and its trained parameters; the objective itself if
        both are its own."""
        base, trains = self._config.phases[phase].rotary_base, self._config.phases[phase].trains
        own = self
        if base not in (None, self.model.rotary_base):
            own = type(self)(self._config.replace(model=self.model.replace(rotary_base=base)), self._mask_id)
        if trains != own._trains:
            own = copy.copy(own)
            own._trains = trains
        return own

    def learns(self, params: Parameters) -> Parameters | None:
        """Whether each parameter is trained in the objective's phase; None if all are."""
        return None if self._trains == "all" else trained_parameters(params, self._trains)

    def init(self, key: Key[Array, ""]) -> Parameters:
        """Random parameters of the model, which don't depend on a teacher, and of its teacher."""
        of_teacher = {TEACHER: self.teacher.init(jax.random.fold_in(key, 2))} if self.teacher else {}
        return init(self.model, key) | of_teacher

    def flops(self, shape: tuple[int, ...]) -> float:
        (batch_size, length), predictions = shape, self._config.slots(shape[1])
        added = self.teacher.flops(length, predictions) if self.teacher else ()
        return batch_size * (train_flops(self.model, length, predictions) + sum(added))

    def forward_flops(self, shape: tuple[int, ...]) -> float:
        own = shape[0] * self.teacher.flops(shape[1], self._config.slots(shape[1]))[0] if self.teacher else 0.0
        return own + (self.flops(shape) - own) * FORWARD_SHARE

    def random_batch(self, shape: tuple[int, ...]) -> Batch:
        batch_size, length = shape
        most = self._config.data.sequences_a_row(length)
        return synthetic_batch(batch_size, length, vocabulary_size(self.model), most)

    def memory(self, phase: Phase, mesh: Mesh) -> Memory:
        """Memory of a step of `phase` on one device in bytes, by formula."""
        predictions, packed = self._config.slots(phase.length), self._config.data.sequences_a_row(phase.length)
        optimizer, execution = make_optimizer(self._config.optimizer), self._config.execution
        memory = step_memory(execution, self.model, mesh, phase, optimizer, predictions=predictions, packed=packed)
        return self.teacher.memory(memory, phase, mesh, predictions, packed) if self.teacher else memory

    def targets(self, batch: Batch, keys: Key[Array, "B N"], moment: Moment | None = None) -> PretrainingTargets:
        """The input, labels and weights of each sequence. What is predicted is drawn by the sequence's key. Fillers
        have the weight 0."""
        masked = self._masked(batch.tokens, keys, moment)
        sequence = jnp.take_along_axis(batch.tokens.sequence, masked.places, axis=1)
        weight = jnp.take_along_axis(batch.weight, jnp.maximum(sequence - 1, 0), axis=1)
        return PretrainingTargets(masked._replace(weights=masked.weights * weight), batch.pair_label, batch.weight)

    def counts(self, targets: PretrainingTargets) -> dict[str, Float[Array, ""]]:
        """The number of predicted tokens, the number of sequences, and that of the tokens that a teacher judges."""
        counts = {question.loss: jnp.sum(weights) for question, _, weights in self._labelled(targets)}
        if self.teacher:
            counts[TEACHER_LOSS] = self.teacher.count(targets.masked, _token_weights(targets))
        return counts

    def measure(self, params: Parameters, targets: PretrainingTargets, dropout_keys: Key[Array, "B N"] | None) -> Means:
        """Cross-entropy in nats and accuracy of each question, and the measurements of a teacher."""
        teacher = self.teacher
        mutable = teacher.mutable if teacher else []
        predict = functools.partial(self.network.apply, {"params": params}, method="predict", mutable=mutable)
        arguments = targets.masked.tokens, self._places(targets), dropout_keys, targets.ranks
        (token_logits, pair_logits), variables = predict(*arguments)
        whole = token_logits.whole() if teacher and teacher.predicts else None  # a teacher's loss needs all logits
        means: Means = {}
        for question, labels, weights in self._labelled(targets):
            logits = pair_logits if question is self.pair_question else whole
            if logits is None:
                loss, hit = total_cross_entropy(token_logits, labels, weights)
            else:
                loss, hit = (jnp.sum(values * weights) for values in cross_entropy(logits, labels))
            count = jnp.sum(weights)
            means |= {question.loss: Mean(loss, count), question.accuracy: Mean(hit, count)}
        if teacher:
            means |= teacher.measure(params[TEACHER], targets.masked, _token_weights(targets), whole, variables)
        return means

    def mean_cosine(self, params: Parameters, batch: Batch) -> Mean:
        """The mean cosine between the vectors of different rows. A row's vector is the mean of the last layer's vectors
        of its tokens, unmasked and without dropout."""
        encoded = cast(Encoded, self.network.apply({"params": params}, batch.tokens, method="encode"))
        real = (batch.tokens.sequence > 0)[..., None].astype(jnp.float32)
        vectors = jnp.sum(encoded.tokens.astype(jnp.float32) * real, axis=1)
        unit = vectors / jnp.maximum(jnp.linalg.norm(vectors, axis=1, keepdims=True), 1e-9)
        is_row = jnp.any(batch.weight > 0, axis=1).astype(jnp.float32)
        count, total = jnp.sum(is_row), jnp.sum(unit * is_row[:, None], axis=0)
        return Mean(jnp.sum(jnp.square(total)) - count, count * (count - 1))

    def guess(self, batch: Batch, targets: PretrainingTargets, log_share: Float[Array, " V"]) -> Means:
        """Sums over a batch that `baseline` needs. `log_share`: the logarithm of each piece's share of the text.

        These shares don't count [SEP], which may be a next token, and [CLS], which may be a previous one. So the result
        `end` gives the share of [CLS] and [SEP] among the labels.
        """
        labels, weights = targets.masked.labels, targets.masked.weights
        first, last = batch.tokens.begin, batch.tokens.begin + batch.tokens.length - 1
        # The ids of [CLS] and [SEP] are found in the row's first sequence: at its ends, or both after its text.
        other = last - 1 if self.model.class_token == "last" else first
        ends = jnp.take_along_axis(batch.tokens.ids, jnp.concatenate([other[:, :1], last[:, :1]], axis=1), axis=1)
        is_end = jnp.any(labels[:, :, None] == ends[:, None], axis=-1)
        return {
            self.token_question.loss: Mean.of(jnp.where(is_end, 0.0, -log_share[labels]), weights),
            self.token_question.accuracy: Mean.of((labels == jnp.argmax(log_share)).astype(jnp.float32), weights),
            "end": Mean.of(is_end.astype(jnp.float32), weights),
            "random": Mean.of(batch.pair_label.astype(jnp.float32), batch.weight),
        }

    def baseline(self, guessed: dict[str, float], measured: dict[str, float]) -> dict[str, float]:
        """The measurements of a baseline that knows only frequencies and gives each token or pair the same prediction.

        For tokens, its probabilities are the pieces' shares of the text and its guess is the most frequent piece. For
        pairs, its guess is the more frequent label. `guessed`: the means of `guess`; `measured`: the measurements of
        the model.
        """
        random, end = guessed["random"], guessed["end"]
        values = {
            self.token_question.loss: guessed[self.token_question.loss] + _entropy(end),
            self.token_question.accuracy: max(guessed[self.token_question.accuracy], end),
        }
        if self.pair_question:
            values[self.pair_question.accuracy] = max(random, 1 - random)
        return values

    def _masked(self, tokens: Tokens, keys: Key[Array, "B N"], moment: Moment | None) -> Masked:
        """The model's input rows, with the places and labels of the tokens to predict."""
        return mask_sequences(
            tokens,
            keys,
            self._config.objective.replacing,
            mask_id=self._mask_id,
            vocabulary_size=vocabulary_size(self.model),
            units=self._config.phases[moment.phase].units if moment else None,
            done=moment and moment.done,
        )

    def _places(self, targets: PretrainingTargets) -> Int[Array, "B P"] | None:
        """The places at which the vocabulary is predicted; None for all."""
        return targets.masked.places

    def _labelled(
        self, targets: PretrainingTargets
    ) -> Iterator[tuple[Question, Int[Array, "..."], Float[Array, "..."]]]:
        """Each question with its labels and weights."""
        yield self.token_question, targets.masked.labels, targets.masked.weights
        if self.pair_question:
            yield self.pair_question, targets.pair_label, targets.pair_weight


class TaggedTokens(MaskedTokens):
    """Masked tokens in the rows of text and, in the rows of a treebank, the tag of each word at its first piece
    (MicroBERT, Gessler and Zeldes 2022). The loss is the weighted sum of both means over the global batch.

    The head for tags, a linear layer, is in the checkpoints for the training and for `evaluate`. An evaluation without
    a treebank measures masked tokens and doesn't need the head.
    """

    def __init__(self, config: RunConfig, mask_id: int):
        super().__init__(config, mask_id)
        self._head = TaskHead(self.model, len(UNIVERSAL_TAGS))

    @property
    def questions(self) -> dict[Question, float]:
        """Both questions, each with the weight of its loss."""
        return super().questions | {TAGS: self._config.objective.tags_weight}

    def init(self, key: Key[Array, ""]) -> Parameters:
        """The same parameters as without tags, and the head."""
        head = self._head.init(jax.random.fold_in(key, 1), jnp.zeros((1, self.model.hidden_size)))
        return super().init(key) | {"tag": head["params"]}

    def flops(self, shape: tuple[int, ...]) -> float:
        """The last block and the head are computed at all tokens."""
        batch_size, length = shape
        head = 2 * length * self.model.hidden_size * len(UNIVERSAL_TAGS)
        added = flops_at_all_tokens(self.model, length, self._config.slots(length)) + head
        return super().flops(shape) + 3 * batch_size * added

    def random_batch(self, shape: tuple[int, ...]) -> Batch:
        batch = super().random_batch(shape)
        return batch._replace(tags=batch.tokens.ids % len(UNIVERSAL_TAGS))

    def targets(self, batch: Batch, keys: Key[Array, "B N"], moment: Moment | None = None) -> PretrainingTargets:
        """Masks each sequence of text by its key."""
        return super().targets(batch, keys, moment)._replace(tags=batch.tags)

    def counts(self, targets: PretrainingTargets) -> dict[str, Float[Array, ""]]:
        """The number of masked tokens and the number of tagged words."""
        assert targets.tags is not None
        return super().counts(targets) | {TAGS.loss: jnp.sum(targets.tags >= 0, dtype=jnp.float32)}

    def measure(self, params: Parameters, targets: PretrainingTargets, dropout_keys: Key[Array, "B N"] | None) -> Means:
        """Cross-entropy in nats and accuracy of masked tokens and, if `targets` has any, of tags."""
        if targets.tags is None:
            return super().measure(params, targets, dropout_keys)
        masked, tagged = targets.masked, (targets.tags >= 0).astype(jnp.float32)
        network = self.network.bind({"params": params})
        vectors = network.bert(masked.tokens, dropout_keys).tokens
        logits = network.masked_lm(at_places(vectors, masked.places), network.bert.embeddings.word)
        loss, hit = total_cross_entropy(logits, masked.labels, masked.weights)
        of_tags = cast(Array, self._head.apply({"params": params["tag"]}, vectors))
        tag_loss, tag_hit = cross_entropy(of_tags, jnp.maximum(targets.tags, 0))
        count = jnp.sum(masked.weights)
        return {
            MASKED_TOKENS.loss: Mean(loss, count),
            MASKED_TOKENS.accuracy: Mean(hit, count),
            TAGS.loss: Mean.of(tag_loss, tagged),
            TAGS.accuracy: Mean.of(tag_hit, tagged),
        }


class NextTokens(MaskedTokens):
    """A causal model predicts the token after each token, except after a sequence's last."""

    token_question = main_question = NEXT_TOKENS

    def _masked(self, tokens: Tokens, keys: Key[Array, "B N"], moment: Moment | None) -> Masked:
        return next_tokens(tokens)

    def _places(self, targets: PretrainingTargets) -> None:
        return None


class PermutedTokens(MaskedTokens):
    """The tokens that masking would choose are predicted one after the other in a random order, each from the tokens
    that aren't predicted and those before it in the order (Yang et al. 2019). No token is replaced.

    The memory of earlier rows (Dai et al. 2019) is left out, so that a row depends on its ordinal alone.
    """

    token_question = main_question = PERMUTED_TOKENS

    def targets(self, batch: Batch, keys: Key[Array, "B N"], moment: Moment | None = None) -> PretrainingTargets:
        """Chooses tokens of each sequence and their order by its key."""
        targets = super().targets(batch, keys, moment)
        return targets._replace(ranks=order_of_prediction(targets.masked, MaskingKeys.of(keys).kind))


class BothNeighbours(NextTokens):
    """Each direction of a model of LSTM layers predicts the token that it reads next: the forwards direction the next
    token, the backwards direction the previous one. The loss is the mean over the predictions of both."""

    token_question = main_question = BOTH_NEIGHBOURS

    def _masked(self, tokens: Tokens, keys: Key[Array, "B N"], moment: Moment | None) -> Masked:
        return neighbours(tokens)


class ReplacedTokens(MaskedTokens):
    """A generator predicts masked tokens; a discriminator classifies every token as original or replaced.

    The loss is the weighted sum of the generator's mean over the masked tokens and the discriminator's over all tokens.
    No gradient passes from the discriminator to the generator through the drawn tokens. A drawn token that equals the
    original token counts as original.

    With model.shared_embeddings=disentangled, the parameters hold the tables of both models, but the optimizer trains
    the generator's tables and the differences of the discriminator's from them (see `optimizer`).
    """

    main_question = REPLACED_TOKENS

    def __init__(self, config: RunConfig, mask_id: int):
        """Raises UsageError for a model that has no generator."""
        if config.model.generator is None:
            raise UsageError(
                f"the model is a discriminator without a generator ({Setting('model.generator_divisor', None)}), which "
                "would replace tokens for it: it can't be trained or measured on text; --model.generator-divisor 4 "
                "adds a generator to a pretraining run"
            )
        super().__init__(config, mask_id)
        self.measurements = (*self.measurements, REPLACED_SHARE)
        self._discriminator = Discriminator(self.model, config.execution)

    @property
    def questions(self) -> dict[Question, float]:
        """The questions of generator and discriminator, each with the weight of its loss."""
        objective = self._config.objective
        return {MASKED_TOKENS: objective.generator_weight, REPLACED_TOKENS: objective.discriminator_weight}

    def targets(self, batch: Batch, keys: Key[Array, "B N"], moment: Moment | None = None) -> PretrainingTargets:
        """Masks each sequence by its key, and adds the keys for drawing replacements."""
        return super().targets(batch, keys, moment)._replace(drawing_keys=MaskingKeys.of(keys).generator)

    def optimizer(self, optimizer: optax.GradientTransformationExtraArgs) -> optax.GradientTransformationExtraArgs:
        """With disentangled embeddings: `optimizer` for the generator's tables and the differences of the
        discriminator's from them (He et al. 2021, arXiv 2111.09543, equation 4).

        A table of the discriminator is stored as a whole, E_D = E_G + E_difference, so that it needs no generator where
        it is used. Its gradient is that of the difference, which the optimizer sees as the parameter; then E_D moves by
        the updates of both.
        """
        if self.model.shared_embeddings != "disentangled":
            return optimizer

        def update(gradients: Parameters, state: Any, params: Parameters, **others) -> tuple[Parameters, Any]:
            updates, state = optimizer.update(gradients, state, _combined(jnp.subtract, params), **others)
            return _combined(jnp.add, updates), state

        return optax.GradientTransformationExtraArgs(optimizer.init, update)

    def counts(self, targets: PretrainingTargets) -> dict[str, Float[Array, ""]]:
        """The number of masked tokens and the number of all tokens."""
        return super().counts(targets) | {REPLACED_TOKENS.loss: jnp.sum(_token_weights(targets))}

    def measure(self, params: Parameters, targets: PretrainingTargets, dropout_keys: Key[Array, "B N"] | None) -> Means:
        """Cross-entropy in nats and accuracy of both models, and the share of tokens that are replaced."""
        masked = targets.masked
        in_generator, in_discriminator = (None, None) if dropout_keys is None else split(dropout_keys, 2)
        logits, _ = self.network.apply(
            {"params": generator_parameters(params)}, masked.tokens, masked.places, in_generator
        )
        loss, hit = cross_entropy(logits, masked.labels)
        assert targets.drawing_keys is not None
        drawn = draw_tokens(jax.lax.stop_gradient(logits), masked, targets.drawing_keys)
        tokens, replaced = replace_tokens(masked, drawn)
        scores = cast(Array, self._discriminator.apply({"params": params}, tokens, in_discriminator))
        weights = _token_weights(targets)
        return {
            MASKED_TOKENS.loss: Mean.of(loss, masked.weights),
            MASKED_TOKENS.accuracy: Mean.of(hit, masked.weights),
            REPLACED_TOKENS.loss: Mean.of(optax.sigmoid_binary_cross_entropy(scores, replaced), weights),
            REPLACED_TOKENS.accuracy: Mean.of(((scores > 0) == (replaced > 0)).astype(jnp.float32), weights),
            REPLACED_SHARE: Mean.of(replaced, weights),
        }

    def baseline(self, guessed: dict[str, float], measured: dict[str, float]) -> dict[str, float]:
        """The baseline of masked tokens, and a baseline that takes every token for original. Its probability that a
        token was replaced is the share of replaced tokens in the model's draws."""
        share = measured[REPLACED_SHARE]
        replaced = {REPLACED_TOKENS.loss: _entropy(share), REPLACED_TOKENS.accuracy: 1 - share}
        return super().baseline(guessed, measured) | replaced


def _combined(combine: Callable[[Array, Array], Array], params: Parameters) -> Parameters:
    """`params` with each disentangled table of the discriminator combined with the generator's."""
    theirs, own = params["bert"]["embeddings"], params["generator"]["bert"]["embeddings"]
    both = {name: combine(theirs[name], own[name]) for name in theirs.keys() & own.keys() & {*DISENTANGLED_TABLES}}
    return params | {"bert": params["bert"] | {"embeddings": theirs | both}}


OBJECTIVES: dict[str, type[MaskedTokens]] = {
    "masked": MaskedTokens,
    "next": NextTokens,
    "permuted": PermutedTokens,
    "replaced": ReplacedTokens,
    "both": BothNeighbours,
}
"""The objective's class, by the setting objective.predict."""


def _token_weights(targets: PretrainingTargets) -> Float[Array, "B T"]:
    """1 for each token of a real sequence, 0 for padding and fillers."""
    sequence = targets.masked.tokens.sequence
    return jnp.take_along_axis(targets.pair_weight, jnp.maximum(sequence - 1, 0), axis=1) * (sequence > 0)


def _entropy(share: float) -> float:
    """Entropy in nats of an event with probability `share`, which is the least loss of a constant prediction."""
    return -sum(part * math.log(part) for part in (share, 1 - share) if part)


PretrainingTrainer = Trainer[RunConfig, MaskedTokens]


def pretraining_objective(
    config: RunConfig, vocabulary: Vocabulary | int, objective_class: type[MaskedTokens] | None = None
) -> MaskedTokens:
    """The objective of a run. If `config` names a teacher, it must hold the teacher's settings (`with_teacher`).

    `vocabulary`: that of the run, or the number of pieces of one that isn't trained yet. `objective_class`: a subclass
    of the class that objective.predict names; None: that class. Raises UsageError for any other class, and if the
    settings name another size.
    """
    if isinstance(vocabulary, Vocabulary):
        size, mask_id = len(vocabulary), vocabulary.mask_id
    else:
        size, mask_id = vocabulary, SPECIAL_PIECES.index(MASK)
    if config.model.vocabulary_size not in (None, size):
        raise UsageError(
            f"{Setting('model.vocabulary_size', config.model.vocabulary_size)} and the vocabulary has {size} pieces; "
            "leave the setting out: it is taken from the vocabulary"
        )
    sized = config.replace(model=config.model.replace(vocabulary_size=size))
    named = TaggedTokens if config.objective.tags else OBJECTIVES[config.objective.predict]
    built_in = (base for base in (objective_class or named).__mro__ if base in (*OBJECTIVES.values(), TaggedTokens))
    if objective_class and next(built_in, None) is not named:
        raise UsageError(
            f"objective={objective_class.__qualname__}: expected a subclass of {named.__name__}, the class of "
            f"{Setting('objective.predict', config.objective.predict)}; change one of them"
        )
    return (objective_class or named)(sized, mask_id)


def pretraining_trainer(
    config: RunConfig, mesh: Mesh, vocabulary: Vocabulary | int, objective_class: type[MaskedTokens] | None = None
) -> PretrainingTrainer:
    """The trainer of a run; it needs no data. Raises the errors of `pretraining_objective`."""
    trainer = Trainer(config, mesh, pretraining_objective(config, vocabulary, objective_class))
    if objective_class:
        _check_names(trainer)
    return trainer


def _check_names(trainer: PretrainingTrainer) -> None:
    """Raises UsageError if the `losses` and `measurements` of a program's objective differ from the names that its
    methods return. Only shapes are computed."""
    objective, length = trainer.objective, trainer.config.phases[0].length

    def names(params: Parameters, batch: Batch) -> tuple[dict[str, Float[Array, ""]], Means]:
        targets = objective.targets(batch, example_keys(0, "evaluation", 0, batch.ordinal))
        return objective.counts(targets), objective.measure(params, targets, None)

    batch = objective.random_batch((trainer.mesh.size, length))
    counts, means = jax.eval_shape(on_mesh(trainer.mesh, names), objective.parameter_shapes, batch)
    found = {"counts": (counts, objective.losses), "measure": (means, objective.measurements)}
    for method, (returned, expected) in found.items():
        if set(returned) != set(expected):
            declared = "losses" if method == "counts" else "measurements"
            raise UsageError(
                f"objective={type(objective).__qualname__}: `{method}` returns {', '.join(sorted(returned))}, and "
                f"`{declared}` names {', '.join(sorted(expected))}; let both have the same names"
            )
    if missing := sorted(set(objective.losses) - set(objective.measurements)):
        raise UsageError(
            f"objective={type(objective).__qualname__}: `losses` has {', '.join(missing)}, and `measurements` doesn't; "
            "add it there"
        )


def expected_vocabulary_size(config: RunConfig, opened: "OpenedModels") -> int:
    """The size that the run's vocabulary will have: that of an existing vocabulary which the settings name, or the
    configured size. Raises UsageError if an existing vocabulary can't be read."""
    if config.distillation.settings and config.model.vocabulary_size:  # known, and the teacher's files may be missing
        return config.model.vocabulary_size
    if config.vocabulary_origin:
        from bert_jax.pretraining.vocabulary import existing_tokenizer  # imports the tokenizers' libraries

        tokenizer, _ = existing_tokenizer(config, opened)
        assert tokenizer is not None
        return len(tokenizer.vocabulary)
    return config.model.vocabulary_size or config.vocabulary.size


def expected_objective(config: RunConfig, opened: "OpenedModels") -> MaskedTokens:
    """The objective of a run that needn't exist, for the vocabulary that it has or will have.

    Raises UsageError if the vocabulary can't be read, or if settings don't fit each other.
    """
    if isinstance(config, FittedConfig):
        from bert_jax.pretraining.fitting import fitted  # imports the tokenizers' libraries

        config = fitted(config, opened)
    size = expected_vocabulary_size(config, opened)
    if config.teacher:
        from bert_jax.pretraining.teacher import with_named_teacher  # imports the tokenizers' libraries

        config = with_named_teacher(config, opened)
    return pretraining_objective(config, size)
