"""The questions of pretraining, and the names of their measurements in tables and sentences."""

from typing import NamedTuple


class Question(NamedTuple):
    """One of the prediction tasks whose losses pretraining adds up."""

    name: str
    """Prefix of the names of its measurements."""
    label: str
    """Name in tables and in the progress line."""
    title: str
    """Name in sentences."""
    guessed_accuracy: str
    """Text about the baseline's guess."""
    guessed_loss: str | None = None
    """Text about the baseline's probabilities; None if the baseline's loss isn't measured."""
    second_segment: tuple[str, str] | None = None
    """For a question about pairs, the meaning of the answers 0 and 1 as texts about the second segment."""

    @property
    def loss(self) -> str:
        """Name of the measurement of the question's cross-entropy."""
        return f"{self.name}_loss"

    @property
    def accuracy(self) -> str:
        """Name of the measurement of the question's accuracy."""
        return f"{self.name}_accuracy"


_OF_PIECES = ("always the most frequent piece", "each piece at its share of the text")
MASKED_TOKENS = Question("mlm", "MLM", "masked-language", *_OF_PIECES)
NEXT_TOKENS = Question("lm", "LM", "next-token", *_OF_PIECES)
PERMUTED_TOKENS = Question("plm", "PLM", "permuted-token", *_OF_PIECES)
BOTH_NEIGHBOURS = Question("bilm", "biLM", "next- and previous-token", *_OF_PIECES)
_MORE_FREQUENT = "always the more frequent class"
NEXT_SENTENCE = Question(
    "nsp", "NSP", "next-sentence", _MORE_FREQUENT, second_segment=("follows the first", "drawn at random")
)
SENTENCE_ORDER = Question(
    "sop", "SOP", "sentence-order", _MORE_FREQUENT, second_segment=("follows the first", "comes before the first")
)
REPLACED_TOKENS = Question(
    "rtd", "RTD", "replaced-token", "always an original token", "each token at the share that is replaced"
)
REPLACED_SHARE = "rtd_replaced"
"""Name of the measurement of the share of replaced tokens, which the baseline of REPLACED_TOKENS uses."""
QUESTIONS = (
    MASKED_TOKENS,
    NEXT_TOKENS,
    PERMUTED_TOKENS,
    BOTH_NEIGHBOURS,
    NEXT_SENTENCE,
    SENTENCE_ORDER,
    REPLACED_TOKENS,
)
OF_PAIRS = {"next_sentence": NEXT_SENTENCE, "sentence_order": SENTENCE_ORDER, "none": None}
"""The question about pairs, by the setting objective.pair."""
