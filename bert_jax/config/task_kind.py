"""The facts of each kind of task, in one table; the code of a kind is its class in `finetuning`."""

from typing import Literal, NamedTuple

HeadInput = Literal["pooled", "choices", "marked", "tokens"]
"""The input of a head: the pooled vector; that of each choice; the pooled one and the mean vector of each marked word;
every token's vector."""
Loss = Literal["classes", "labels", "squares", "tags", "ends"]
"""Cross-entropy over classes or choices; the mean of the binary cross-entropies of all labels; squared error of a
number; cross-entropy over the tags of words that have one; the mean of the cross-entropies of an answer's first and
last token over all tokens."""


class TaskKind(NamedTuple):
    """The facts of one kind."""

    texts: tuple[int, int]
    """Least and greatest number of texts in a row."""
    head: HeadInput
    outputs: int | None
    """Numbers that the head gives for each vector that it takes; None: one for each label."""
    loss: Loss
    metrics: tuple[str, ...]
    """Names of the metrics; the first that can be computed is the default to choose checkpoints by."""
    measured_by: str | None = None
    """The library that measures it."""
    words: bool = False
    """Whether a row may have a list of words instead of a text."""
    head_dropout: bool = True
    """Whether there is dropout on the head's input. The original has none before the scores of answers."""
    written_to: str | None = None
    """Ending of a file of predictions that only this kind has, beside JSON lines and tables."""
    exported_as: str | None = None
    """The class of transformers with this head; None where there is none."""
    tensors: str = "classifier."
    """How the names of the head's tensors begin there."""
    problem: str | None = None
    """`problem_type` of that class."""
    hub_use: str = "text-classification"
    """Name of this use on the Hugging Face hub."""

    @property
    def weighted(self) -> bool:
        """Whether classes may have weights in the loss: each target is one of the labels."""
        return self.labelled and self.loss in ("classes", "tags")

    @property
    def labelled(self) -> bool:
        """Whether the labels are names, with one output of the head for each."""
        return self.outputs is None


_OF_CLASSES = ("accuracy", "f1", "macro_f1", "matthews")
_CLASSES, _ROWS = "sklearn.metrics", "BertForSequenceClassification"

TASK_KINDS: dict[str, TaskKind] = {
    "class": TaskKind(
        texts=(1, 2),
        head="pooled",
        outputs=None,
        loss="classes",
        metrics=_OF_CLASSES,
        measured_by=_CLASSES,
        exported_as=_ROWS,
        problem="single_label_classification",
    ),
    "labels": TaskKind(
        texts=(1, 2),
        head="pooled",
        outputs=None,
        loss="labels",
        metrics=("micro_f1", "macro_f1", "exact_match"),
        measured_by=_CLASSES,
        exported_as=_ROWS,
        problem="multi_label_classification",
    ),
    "number": TaskKind(
        texts=(1, 2),
        head="pooled",
        outputs=1,
        loss="squares",
        metrics=("pearson", "spearman"),
        measured_by="scipy.stats",
        exported_as=_ROWS,
        problem="regression",
    ),
    "marked": TaskKind(
        texts=(1, 2), head="marked", outputs=None, loss="classes", metrics=_OF_CLASSES, measured_by=_CLASSES
    ),
    "choice": TaskKind(
        texts=(1, 1),
        head="choices",
        outputs=1,
        loss="classes",
        metrics=("accuracy",),
        measured_by=_CLASSES,
        exported_as="BertForMultipleChoice",
        hub_use="multiple-choice",
    ),
    "tags": TaskKind(
        texts=(1, 1),
        head="tokens",
        outputs=None,
        loss="tags",
        metrics=("entity_f1", "accuracy"),
        measured_by="seqeval.metrics",
        words=True,
        written_to=".conll",
        exported_as="BertForTokenClassification",
        hub_use="token-classification",
    ),
    "span": TaskKind(
        texts=(2, 2),
        head="tokens",
        outputs=2,
        loss="ends",
        metrics=("f1", "exact_match"),
        head_dropout=False,
        written_to=".json",
        exported_as="BertForQuestionAnswering",
        tensors="qa_outputs.",
        hub_use="question-answering",
    ),
}
"""By the name in `task.kind`."""
