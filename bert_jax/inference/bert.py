"""Uses a trained model: fills masks, scores, encodes and searches text, extracts features, predicts."""

import math
import os
from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from itertools import islice
from typing import Any, overload

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from jaxtyping import Float

from bert_jax.config.model import ModelConfig
from bert_jax.config.task import TaskConfig
from bert_jax.config.vectors import NO_PROMPT, Prompt
from bert_jax.finetuning.rows_to_predict import python_records
from bert_jax.finetuning.task import Prediction
from bert_jax.inference.batches import Vectors, in_order, stacked
from bert_jax.inference.embedder import Embedder
from bert_jax.inference.features import BatchedModel, Choice, Feature, check_count
from bert_jax.inference.filling import Fill, Filler, JointFill
from bert_jax.inference.predictor import Predictor
from bert_jax.inference.scoring import ScoredText, Scorer
from bert_jax.inference.search import Hit, SearchCorpus, search
from bert_jax.inference.vector_file import Origin
from bert_jax.interchange.hub import model_place
from bert_jax.layout import Tokens, lay_out_sequences
from bert_jax.model.bert import BertForPretraining, Discriminator, Parameters, generator_parameters
from bert_jax.model.kernels.platform import for_inference
from bert_jax.model.sharding import on_first_device
from bert_jax.model.task import BertForTask, HeadShape, PooledEncoder
from bert_jax.records.python_values import TaskRows, Texts, python_rows, python_texts
from bert_jax.run.run_files import RunFiles
from bert_jax.run.trained_model import Provenance, TrainedModel, save_model
from bert_jax.system.bucket import Place, place_of
from bert_jax.system.errors import UsageError, quoted
from bert_jax.system.progress import say
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.training.compiled_programs import keep_compiled_programs


class Bert:
    """A model with its tokenizer.

    Attributes: `config`, `params`, `tokenizer`; `steps`, the saved steps that the parameters come from; `task`, the
    settings of the task, or None if the model isn't fine-tuned; `provenance`, where the parameters come from.

    Methods take texts, pairs (first, second) or rows as lists, generators, arrays, frames, series, tables or data sets,
    and raise UsageError for anything else.
    """

    def __init__(
        self,
        config: ModelConfig,
        params: Parameters,
        tokenizer: Tokenizer,
        task: TaskConfig | None = None,
        *,
        provenance: Provenance | None = None,
    ):
        """Prepares the model for use. Raises UsageError if its vocabulary and the tokenizer's differ in size.

        `provenance`: the run that the parameters come from, or how another program's files were understood.
        """
        if len(tokenizer.vocabulary) != config.vocabulary_size:
            raise UsageError(
                f"the tokenizer has {len(tokenizer.vocabulary)} pieces and the model {config.vocabulary_size}; "
                "they don't belong together"
            )
        self.config, self.params, self.tokenizer, self.task = config, params, tokenizer, task
        self.provenance = provenance or Provenance()
        self.steps = self.provenance.steps
        self._model = BatchedModel(config, params, tokenizer)
        self._stacked = partial(stacked, config.hidden_size, "pooler" in params["bert"])

    @overload
    def fill_mask(self, text: str, top: int = 5) -> list[list[Fill]]: ...  # type: ignore[overload-overlap]
    @overload
    def fill_mask(self, text: Texts, top: int = 5) -> list[list[list[Fill]]]: ...
    def fill_mask(self, text, top=5):
        """For each [MASK] in `text`, in order, the `top` most likely pieces with their probabilities.

        A list of texts is computed together, and gives a list of such results. Pieces are written for people to read: a
        WordPiece marks the continuation of a word by ##, all other kinds mark the start of a word by \u2581. In place
        of a discriminator, its generator fills the masks. Raises UsageError if a text has no [MASK] or is too long, or
        if the model is causal or has no masked-language head.
        """
        if isinstance(text, str):
            return self._filler.fill([text], top)[0]
        return self._filler.fill([*python_texts(text, "fill_mask", pairs=False)], top)

    def fill_together(self, text: str, top: int = 5) -> list[JointFill]:
        """The `top` most likely combinations of pieces for all [MASK] of `text`, with their joint probabilities.

        See `Filler.fill_together`. Raises UsageError as `fill_mask` does.
        """
        return self._filler.fill_together(text, top)

    def candidates(self, text: str, words: Texts) -> list[Fill]:
        """The probability of each of `words` in place of [MASK], which `text` has once. A word may be several pieces.

        See `Filler.candidates`. Raises UsageError as `fill_mask` does, and for a word without pieces.
        """
        several = [words] if isinstance(words, str) else [*python_texts(words, "candidates", pairs=False)]
        return self._filler.candidates(text, several)

    @cached_property
    def _filler(self) -> Filler:
        return self.generator._filler if self.generator else Filler(self._model)

    def score(self, texts: Texts, method: str | None = None) -> list[float]:
        """The score of each text in nats, the sum of its tokens' log probabilities: higher is more acceptable.

        The score of a masked language model is the pseudo-log-likelihood. `method`: what is hidden when a token is
        predicted, "token" (this token alone) or "word" (also the later pieces of its word); None: "token". The score of
        a causal model is the log-likelihood, and that of a model with LSTM layers is the mean of the log-likelihoods of
        both directions; these two kinds take no method. In place of a discriminator, its generator gives the score. A
        text that is empty, or longer than the model's positions, has the score nan, and a message counts such texts.

        Raises UsageError for an unknown method, and if the model has no head that predicts tokens.
        """
        return [math.nan if each.score is None else each.score for each in self.score_stream(texts, method)]

    def score_stream(self, texts: Texts, method: str | None = None) -> Iterator[ScoredText]:
        """Yields each text with the log probability of each of its tokens, in input order and bounded memory.

        Scores are those of `score`. Raises UsageError at once for an unknown method.
        """
        return self.scorer.stream(python_texts(texts, "score"), self.scorer.method(method))

    @cached_property
    def scorer(self) -> Scorer:
        """Computes the scores of `score`. Raises UsageError if the model has no head that predicts tokens."""
        if self.generator:
            say("the model is a discriminator; its generator, which predicts tokens, gives the scores")
            return self.generator.scorer
        return Scorer(self._model)

    @cached_property
    def generator(self) -> "Bert | None":
        """The generator that was trained together with a discriminator, with the tables that both share; None if the
        model has no generator."""
        config = self.config.generator
        if config is None or "generator" not in self.params:
            return None
        return Bert(config, generator_parameters(self.params), self.tokenizer, provenance=self.provenance)

    def __repr__(self) -> str:
        config, size = self.config, sum(leaf.size for leaf in jax.tree.leaves(self.params))
        shape = f"{config.num_layers} layers, {config.hidden_size} wide, {config.max_positions} positions"
        return (
            f"Bert: {config.model_type}, {size:,} parameters, {shape}, steps {[*self.steps]}\n"
            f"  task: {f'{self.task.name} ({self.task.kind})' if self.task else None}\n"
            f"  tokenizer: {self.tokenizer.kind}, {len(self.tokenizer.vocabulary):,} pieces"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (self.config, jax.device_get(self.params), self.tokenizer, self.task, self.provenance)

    def save(self, workdir: str | os.PathLike) -> None:
        """Writes config, tokenizer and parameters as a run that every command and `load` take, at step 0.

        The run has no training state: other runs start from it. Raises UsageError if `workdir` exists and isn't empty,
        and if the parameters aren't those of the config.
        """
        save_model(place_of(workdir), self.config, self.params, self.tokenizer, self.task)

    @property
    def module(self) -> nn.Module:
        """The Flax module of `params`.

        A batch is computed by `module.apply({"params": params}, tokens)`. A pretrained model returns logits over the
        padded vocabulary, [B, T, V], and the logits of sentence pairs or None. A discriminator returns for each token
        the logit that it was replaced, [B, T]. A model of vectors returns a vector for each sequence. The module of a
        task also takes marks and random keys (see `bert_jax.model.task.BertForTask`).
        """
        if self.task is None:
            return (Discriminator if self.config.discriminator else BertForPretraining)(self.config)
        if self.task.makes_vectors:
            return PooledEncoder(self.config, self.task.pooling)
        return BertForTask(self.config, HeadShape.of(self.task))

    def tokens(self, texts: Texts, special: bool = True) -> Tokens:
        """Converts texts or pairs to the input of `module`: arrays [B, T] with a row for each, padded to the longest.

        [MASK] and the tokenizer's other special pieces, written in a text, become these pieces. With `special=False`
        they are read as ordinary characters, as in all methods that don't fill masks. A text longer than the model's
        positions is cut. Prompts (see `embed`) aren't added.
        """
        rows = list(self._model.sequences(python_texts(texts, "tokens"), special=special))
        shape = len(rows), max((len(row.ids) for row in rows), default=0)
        return jax.tree.map(jnp.asarray, lay_out_sequences(rows, shape, self.tokenizer.vocabulary.pad_id))

    def encode(self, texts: Texts) -> Vectors:
        """The vectors of all tokens of `texts`, each a text or a pair (first, second), in input order.

        Texts are computed in batches of similar length; a model of 512 positions is compiled for at most 51 shapes of
        batches. Apart from rounding, the vectors of a text don't depend on the other texts. A text longer than the
        model's positions is cut; the longer text of a pair loses its end first. A message reports how many were cut.
        """
        rows = list(self._model.sequences(python_texts(texts, "encode")))
        return self._stacked(in_order(self._model.encoded(rows)), [len(row.ids) for row in rows])

    def encode_stream(self, texts: Texts, batch_size: int = 64) -> Iterator[Vectors]:
        """Yields the vectors of `batch_size` texts or pairs at a time, in input order, in bounded memory.

        Reads two windows ahead, each of 65,536 tokens (262,144 on an accelerator), which are some thousands of
        sentences. The texts of a window are computed in order of their length. Texts that are too long are cut; one
        line at the end reports how many. Raises UsageError for a `batch_size` below 1.
        """
        check_count("batch_size", batch_size)
        outputs = in_order(self._model.encoded(self._model.sequences(python_texts(texts, "encode_stream"))))
        while some := list(islice(outputs, batch_size)):
            yield self._stacked(some, [len(output.tokens) for output in some if output.tokens is not None])

    def features(
        self, texts: Texts, layers: Sequence[int] = (), join: str = "concat", pool: str = "none", dtype: str = "float32"
    ) -> Iterator[Feature]:
        """Yields each text with vectors of the chosen layers: one for each token or, unless `pool` is "none", one for
        the whole text.

        The allowed values of `join`, `pool` and `dtype` are those of Join, Pool and Precision in
        bert_jax.config.vectors. `layers`: 0 is the embeddings, 1 the first layer; -1 is the last layer, -2 the one
        before. Without layers, the last four are taken, or all of a model that has fewer. Several layers are joined in
        the given order. Pooling includes [CLS] and [SEP].

        Memory is bounded: texts are read ahead as in `encode_stream`, but fewer if layers are concatenated. Raises
        UsageError at once for invalid settings.
        """
        choice = Choice.of(layers, join, pool, dtype, self.config.num_layers)
        return self._model.features(python_texts(texts, "features"), choice)

    def embed(self, texts: Texts, width: int | None = None, *, role: str | None = None) -> Float[np.ndarray, "N W"]:
        """One float32 vector of norm 1 for each text or pair: the cosine of two texts is the dot product of their
        vectors.

        A model of `finetune vectors` cuts texts to `task.max_length` tokens and pools by `task.pool`, as in training.
        For any other model the vector is the mean of the last layer's token vectors, and a message says so.

        `width`: the number of first components to keep, scaled to norm 1; None: all. `role`: "query", "passage" or the
        name of another prompt of the model, which is put before each text; None: its default prompt, if it has one.
        Raises UsageError for a width that isn't from 1 to the model's, and for a role that is unknown.
        """
        blocks = list(self.embed_stream(texts, width, role=role))
        return np.concatenate(blocks) if blocks else np.zeros((0, width or self.config.hidden_size), np.float32)

    def embed_stream(
        self, texts: Texts, width: int | None = None, batch_size: int = 1024, *, role: str | None = None
    ) -> Iterator[Float[np.ndarray, "N W"]]:
        """Yields the vectors of `embed` for `batch_size` texts at a time, in input order and bounded memory.

        Reads texts ahead as `encode_stream` does. Raises UsageError at once for invalid settings.
        """
        texts = python_texts(texts, "embed")
        check_count("batch_size", batch_size)
        return (vectors for _, vectors in self.embedder.batches(texts, width, batch_size, role))

    @overload
    def search(self, queries: str, corpus: Texts, top: int = 10, width: int | None = None, **settings) -> list[Hit]: ...  # type: ignore[overload-overlap]
    @overload
    def search(
        self, queries: Texts, corpus: Texts, top: int = 10, width: int | None = None, **settings
    ) -> list[list[Hit]]: ...
    def search(self, queries, corpus, top=10, width=None, *, columns=(), lines=None):
        """The `top` texts of a corpus with the highest cosines to a query: (row, score, text), best first.

        A list of queries gives a list of such results; the corpus is read once. `corpus`: texts or pairs, or a file as
        for `bert-jax search`, which is one of three kinds: a file with a text on each line; a table, whose `columns`
        hold the texts; or a .npz file of vectors that `bert-jax features` wrote, with `lines` as the file of its texts.
        The search is exact, and its memory doesn't grow with the corpus. Rows are numbered from 1. Rows of equal scores
        stay in the order of the corpus, and empty texts are left out.

        Raises UsageError for an empty query, a `top` below 1, an empty corpus, and a file that can't be used.
        """
        several = [queries] if isinstance(queries, str) else [*python_texts(queries, "search", pairs=False)]
        hits = search(self.embedder, several, SearchCorpus(corpus, columns, lines), top, width)
        return hits[0] if isinstance(queries, str) else hits

    @cached_property
    def embedder(self) -> Embedder:
        """Computes the vectors of `embed`."""
        return Embedder(self._model, self.task)

    def origin(self, choice: Choice, prompt: Prompt = NO_PROMPT) -> Origin:
        """Identifies the model, the layers and the prompt of vectors in a file, to refuse vectors of other models."""
        return self._model.origin(choice, prompt)

    def predict(self, rows: TaskRows) -> list[Prediction]:
        """The fine-tuned model's prediction for each of `rows`: mappings of columns to values, texts, or tuples of
        texts.

        Depending on the task, a prediction has `predicted_label`, `predicted_labels` or `predicted_choice`, each with
        `probabilities`; `predicted_number`; `predicted_similarity`; `predicted_tags`, for texts with character spans
        also `predicted_spans` and `predicted_words`; or `predicted_answer` with its `probability`, the `best` answers
        and `null_odds`. Raises UsageError if the model has no task, or if a row lacks a column.
        """
        return list(self.predict_stream(rows))

    def predict_stream(self, rows: TaskRows) -> Iterator[Prediction]:
        """Yields the prediction for each of `rows`, in input order and bounded memory; reads rows ahead.

        Rows and predictions are those of `predict`. Raises UsageError if the model has no task, or if a row lacks a
        column.
        """
        return self.predictor.stream(python_records(python_rows(rows, "predict"), self.predictor.task))

    @cached_property
    def predictor(self) -> Predictor:
        """The predictor of the fine-tuned model. Raises UsageError if the model has no task."""
        if self.task is None:
            raise UsageError(
                "the model has no head for a task (those of other programs' files aren't read); make it one with "
                "bert-jax finetune"
            )
        return Predictor(self.task, self.config, self.params, self.tokenizer)

    def attention(self, text: Any) -> Float[np.ndarray, "L H T T"]:
        """The attention weights of every layer and head for a text or a pair (first, second) of T tokens, with shape
        [layers, heads, T, T]: how much each token (row) attends to each token (column).

        Raises UsageError for anything else than one text or pair.
        """
        if not isinstance(text, str | tuple):
            raise UsageError(
                f"attention takes a text, or a pair of texts as a tuple, and got {quoted(text)}; call it for each text"
            )
        rows = self._model.sequences(python_texts([text], "attention"))
        [(batch, encoded)] = self._model.encoded(rows, return_attention=True)
        length = int(batch.tokens.length[0, 0])
        return np.asarray(encoded.attention)[:, 0, :, :length, :length]


def _unpickled(config: ModelConfig, params: Parameters, *others: Any) -> Bert:
    *arguments, provenance = others
    return Bert(config, jax.device_put(params, on_first_device(params)), *arguments, provenance=provenance)


def load(
    path: str | os.PathLike, step: int | None = None, average: int | None = None, dtype: str | None = None
) -> Bert:
    """Loads a model from a run, a checkpoint of a run, a Hugging Face directory, or the hub by the model's name.

    Directories may be in a bucket. `step`: a saved step of a run; None: the newest undamaged one (for a fine-tuned run,
    the best one). `average`: loads the mean of the parameters of this many saved steps, the last of which is `step` or
    the newest. The parameters are placed on the first local device.

    `dtype`: the type of the matrix products, `float32` or `bfloat16`; None: float32 on CPUs, elsewhere the type of the
    training.

    Raises UsageError if there is no model or step, or its files are inconsistent, and RunError if they are damaged
    (bert_jax.system.errors).
    """
    return bert_of(model_place(path), step, average, dtype)


def bert_of(
    source: Place | RunFiles, step: int | None = None, average: int | None = None, dtype: str | None = None
) -> Bert:
    """What `load` returns, of a model at a place or of a run some of whose files were read already."""
    keep_compiled_programs()
    trained, params = TrainedModel.load(source, on_first_device, step, average)
    config = for_inference(trained.config, dtype)
    return Bert(config, params, trained.tokenizer, trained.task, provenance=trained.provenance)
