"""One normalised vector of each text, to compare texts by (Reimers and Gurevych 2019, arXiv:1908.10084)."""

from collections.abc import Iterable, Iterator
from itertools import islice

import numpy as np
from jaxtyping import Float

from bert_jax.config.task import TaskConfig
from bert_jax.config.vectors import PASSAGE_ROLES, Prompt
from bert_jax.inference.batches import Text
from bert_jax.inference.features import BatchedModel, Choice, Feature
from bert_jax.system.errors import Setting, UsageError
from bert_jax.system.progress import say

_UNTRAINED = (
    "the model was not trained for vectors of texts: its vectors are means over the last layer, so texts of the same "
    "meaning may be far apart; train it with bert-jax finetune vectors"
)


class Embedder:
    """Computes the vectors that a model was trained for by `finetune vectors`: pooled as in training, of length 1. For
    any other model they are pooled by the mean, and a message says that they weren't trained."""

    def __init__(self, model: BatchedModel, task: TaskConfig | None):
        """`task`: the task of a fine-tuned model."""
        self.origin = model.origin
        self._model, self._config = model, model.config
        self._task = task if task and task.makes_vectors else None
        self._said: set[str] = set()
        self.width = model.config.hidden_size
        """Width of a whole vector."""

    @property
    def widths(self) -> tuple[int, ...]:
        """The widths that vectors were trained to be cut to."""
        return self._task.widths if self._task else ()

    @property
    def trained(self) -> bool:
        """Whether the model was trained for vectors of texts."""
        return self._task is not None

    def choice(self, width: int | None = None, dtype: str = "float32") -> Choice:
        """What is computed of each text: the first `width` components of its vector (None: all), normalised.

        A message says once if the model was not trained for vectors, or not for this width. Raises UsageError if
        `width` isn't from 1 to the model's, or if `dtype` isn't a Precision.
        """
        if width is not None and (not isinstance(width, int | np.integer) or not 1 <= width <= self.width):
            raise UsageError(
                f"{Setting('width', width)} is not possible: this model's vectors have {self.width} numbers; give 1 "
                f"to {self.width}"
            )
        chosen = Choice.of(
            (-1,), "concat", self._task.pooling if self._task else "mean", dtype, self._config.num_layers
        )
        if self._task is None:
            self._say_once(_UNTRAINED)
        elif self._task.widths and width not in (None, self.width, *self._task.widths):
            trained = ", ".join(map(str, sorted({*self._task.widths, self.width})))
            self._say_once(f"the model was not trained for width={width}, but for {trained}; its vectors may be worse")
        return chosen._replace(width=width or self.width)

    def prompt(self, role: str | None = None) -> Prompt:
        """What is put before texts of a role: `query`, `passage` (also `document`), or the name of another prompt.

        None: the default prompt; a line names the roles of a model that has prompts. Raises UsageError for a name that
        is neither a role nor a prompt.
        """
        if self._task is None:
            named, prompt = dict[str, str](), Prompt()
        else:
            named, prompt = self._task.prompt_texts, self._task.prompt(role)
        if role not in (None, "query", *PASSAGE_ROLES, *named):
            names = ", ".join(dict.fromkeys(("query", "passage", *named)))
            raise UsageError(f"{Setting('role')}={role!r} is no role of texts; choose from {names}")
        if role is None and any(named.values()):
            before = f"{prompt.text!r} is put before texts" if prompt.text else "nothing is put before texts"
            names = ", ".join(f"{name} {text!r}" for name, text in named.items() if text)
            self._say_once(f"{before} that have no role, and the model has the prompts {names}; name one by role")
        return prompt

    def features(
        self, texts: Iterable[Text], width: int | None = None, dtype: str = "float32", role: str | None = None
    ) -> Iterator[Feature]:
        """Yields each text or pair with its vector, in input order and bounded memory; reads texts ahead.

        The prompt of `role` is put before each text, and texts are cut to the number of tokens that the model was
        trained with. Raises UsageError at once as `choice` and `prompt` do, and later for an element that is neither a
        text nor a pair.
        """
        longest = self._config.max_positions
        if self._task:
            longest = min(self._task.max_length, longest)
        return self._model.features(texts, self.choice(width, dtype), longest, self.prompt(role))

    def batches(
        self, texts: Iterable[Text], width: int | None, size: int, role: str | None
    ) -> Iterator[tuple[list[Text], Float[np.ndarray, "N W"]]]:
        """Yields `size` texts at a time with their vectors. Raises UsageError as `features` does."""
        return _stacked_vectors(self.features(texts, width, role=role), size)

    def _say_once(self, message: str) -> None:
        if message not in self._said:
            self._said.add(message)
            say(message)


def _stacked_vectors(features: Iterator[Feature], size: int) -> Iterator[tuple[list[Text], Float[np.ndarray, "N W"]]]:
    while some := list(islice(features, size)):
        yield [feature.text for feature in some], np.stack([feature.vectors for feature in some])
