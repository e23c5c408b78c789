"""What each kind of task is, in one table. The code of a kind is its class in `finetuning`."""

from typing import Literal, NamedTuple

HeadInput = Literal["pooled", "choices", "marked", "tokens", "texts"]
"""The input of a head: the pooled vector; the pooled vector of each choice; the pooled vector with the mean vector of
each marked word; or every token's vector. With `texts` there is no head, and the output is the vector of each text."""
Loss = Literal["classes", "labels", "squares", "tags", "ends", "contrast"]
"""Cross-entropy over classes or choices; the mean of the binary cross-entropies of all labels; squared error of a
number; cross-entropy over the tags of words that have one; the mean of the cross-entropies of an answer's first and
last token over all tokens; a comparison of all texts of the batch."""


class TaskKind(NamedTuple):
    """One kind of task; the defaults are those of one class for a text or a pair."""

    help: str
    """What the help of task.kind says of this kind."""
    metrics: tuple[str, ...]
    """Names of the metrics. By default, the first one that can be measured chooses the best checkpoint."""
    texts: tuple[int, int] = (1, 2)
    """Least and greatest number of texts in a row."""
    head: HeadInput = "pooled"
    outputs: int | None = None
    """Numbers that the head gives for each of its input vectors. None: one for each label."""
    loss: Loss = "classes"
    target_of_tokens: bool = False
    """Whether each token of an example has a target; otherwise the example has one, a number or a tuple of them."""
    target_dtype: Literal["int32", "float32"] = "int32"
    """Type of the targets' numbers in a batch."""
    measured_by: str | None = None
    """The library that computes the metrics, if it is one of the extra `tasks`."""
    words: bool = False
    """Whether a row may have a list of words instead of a text."""
    head_dropout: bool = True
    """Whether there is dropout on the head's input. The original has none before the scores of answers."""
    written_to: tuple[str, ...] = ()
    """Suffixes of prediction files that only this kind has, besides JSON lines and tables."""
    exported_as: str | None = None
    """The class with this head in transformers; None if there is none."""
    tensors: str = "classifier."
    """Beginning of the names of the head's tensors in transformers."""
    problem: str | None = None
    """`problem_type` of that class in transformers."""
    hub_use: str = "text-classification"
    """Name of this kind of task on the Hugging Face hub."""

    @property
    def weighted(self) -> bool:
        """Whether classes may have weights in the loss: each target is one of the labels."""
        return self.labelled and self.loss in ("classes", "tags")

    @property
    def smoothed(self) -> bool:
        """Whether targets may be smoothed in the loss: each is one of several outputs."""
        return self.loss in ("classes", "tags")

    @property
    def labelled(self) -> bool:
        """Whether the labels are names, with one output of the head for each."""
        return self.outputs is None


_OF_CLASSES = ("accuracy", "f1", "macro_f1", "matthews")
_ROWS = "BertForSequenceClassification"

TASK_KINDS: dict[str, TaskKind] = {
    "class": TaskKind(
        "the class of a text or pair", _OF_CLASSES, exported_as=_ROWS, problem="single_label_classification"
    ),
    "labels": TaskKind(
        "all labels that apply to a text or pair, none or several",
        ("micro_f1", "macro_f1", "exact_match"),
        loss="labels",
        exported_as=_ROWS,
        problem="multi_label_classification",
    ),
    "number": TaskKind(
        "a number",
        ("pearson", "spearman"),
        outputs=1,
        loss="squares",
        target_dtype="float32",
        measured_by="scipy.stats",
        exported_as=_ROWS,
        problem="regression",
    ),
    "marked": TaskKind("the class of a text or pair with a marked word in each text", _OF_CLASSES, head="marked"),
    "choice": TaskKind(
        "the best of several choices",
        ("accuracy",),
        texts=(1, 1),
        head="choices",
        outputs=1,
        exported_as="BertForMultipleChoice",
        hub_use="multiple-choice",
    ),
    "tags": TaskKind(
        "a tag for every word, or the entities of a text",
        ("entity_f1", "accuracy"),
        texts=(1, 1),
        head="tokens",
        loss="tags",
        target_of_tokens=True,
        measured_by="seqeval.metrics",
        words=True,
        written_to=(".conll", ".conllu"),
        exported_as="BertForTokenClassification",
        hub_use="token-classification",
    ),
    "span": TaskKind(
        "the answer to a question in a text",
        ("f1", "exact_match"),
        texts=(2, 2),
        head="tokens",
        outputs=2,
        loss="ends",
        head_dropout=False,
        written_to=(".json",),
        exported_as="BertForQuestionAnswering",
        tensors="qa_outputs.",
        hub_use="question-answering",
    ),
    "vectors": TaskKind(
        "vectors of texts, similar for texts that belong together",
        ("spearman", "pearson", "ndcg@10", "recall@1", "recall@10"),
        texts=(2, 2),
        head="texts",
        outputs=0,
        loss="contrast",
        measured_by="sklearn.feature_extraction",
        exported_as="BertModel",
        hub_use="sentence-similarity",
    ),
}
"""The kinds of tasks, by the name in `task.kind`."""
