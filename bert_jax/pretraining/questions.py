"""What pretraining asks, and what its measurements are called where people read them."""

from typing import NamedTuple


class Question(NamedTuple):
    """One of the questions whose losses pretraining adds up."""

    name: str
    """How the names of its measurements begin."""
    label: str
    """In tables and in the progress line."""
    title: str
    """In sentences."""
    guessed_accuracy: str
    """How one guesses who knows frequencies alone."""
    guessed_loss: str | None = None
    """What probabilities such a one gives; None where that isn't measured."""

    @property
    def loss(self) -> str:
        """The measurement of its cross-entropy."""
        return f"{self.name}_loss"

    @property
    def accuracy(self) -> str:
        """The measurement of its right answers."""
        return f"{self.name}_accuracy"


_OF_PIECES = ("always the commonest piece", "each piece at its share of the text")
MASKED_TOKENS = Question("mlm", "MLM", "masked-language", *_OF_PIECES)
NEXT_TOKENS = Question("lm", "LM", "next-token", *_OF_PIECES)
NEXT_SENTENCE = Question("nsp", "NSP", "next-sentence", "always the commoner class")
QUESTIONS = (MASKED_TOKENS, NEXT_TOKENS, NEXT_SENTENCE)
