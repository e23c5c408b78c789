"""What pretraining may predict, and the questions that it asks the model, in one table."""

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
    asked_about: str = ""
    """For a question about pairs, what it asks about, as the model card says it."""

    @property
    def loss(self) -> str:
        """Name of the measurement of the question's cross-entropy."""
        return f"{self.name}_loss"

    @property
    def accuracy(self) -> str:
        """Name of the measurement of the question's accuracy."""
        return f"{self.name}_accuracy"


class TokenPrediction(NamedTuple):
    """The facts of a value of objective.predict. Its code is a class of `bert_jax.pretraining.objective`."""

    question: Question
    """The question whose accuracy is the run's score."""
    help: str
    """What the help of objective.predict says of this value."""
    described: str
    """What is predicted, as the model card says it."""
    slots_a_token: int = 0
    """Prediction slots for each token of a row; 0 if units of tokens are chosen for prediction."""
    keeps_tokens: bool = False
    """Whether the model reads every token unchanged; otherwise some of the chosen ones are replaced."""
    model_setting: tuple[str, object, str] | None = None
    """The name and the value of the model setting that this prediction requires and no other prediction allows, and the
    reason."""


_OF_PIECES = ("always the most frequent piece", "each piece at its share of the text")
_MORE_FREQUENT = "always the more frequent class"
MASKED_TOKENS = Question("mlm", "MLM", "masked-language", *_OF_PIECES)
NEXT_TOKENS = Question("lm", "LM", "next-token", *_OF_PIECES)
PERMUTED_TOKENS = Question("plm", "PLM", "permuted-token", *_OF_PIECES)
BOTH_NEIGHBOURS = Question("bilm", "biLM", "next- and previous-token", *_OF_PIECES)
REPLACED_TOKENS = Question(
    "rtd", "RTD", "replaced-token", "always an original token", "each token at the share that is replaced"
)
TAGS = Question("tag", "tag", "part-of-speech", "always the most frequent tag")
UNIVERSAL_TAGS = (
    *("ADJ", "ADP", "ADV", "AUX", "CCONJ", "DET", "INTJ", "NOUN", "NUM", "PART", "PRON", "PROPN", "PUNCT", "SCONJ"),
    *("SYM", "VERB", "X"),
)
"""The universal parts of speech (UPOS) of Universal Dependencies 2, which TAGS asks for."""
REPLACED_SHARE = "rtd_replaced"
"""Name of the measurement of the share of replaced tokens, which the baseline of REPLACED_TOKENS uses."""

PREDICTIONS = {
    "masked": TokenPrediction(MASKED_TOKENS, help="masked ones, from both sides", described="masked pieces"),
    "next": TokenPrediction(
        NEXT_TOKENS,
        help="each next token from those before it, as in GPT (Radford et al. 2018). Needs model.causal",
        described="each next piece",
        slots_a_token=1,
        keeps_tokens=True,
        model_setting=("causal", True, "a causal model predicts next tokens, no other model does"),
    ),
    "replaced": TokenPrediction(
        REPLACED_TOKENS,
        help="of every token, whether it was replaced, as in ELECTRA (Clark et al. 2020): a generator learns to "
        "predict masked tokens, and tokens that are drawn from its predictions replace them. Needs model.discriminator "
        "and model.generator_divisor",
        described="masked pieces for a generator, and for a discriminator which pieces the generator replaced",
        model_setting=("discriminator", True, "a discriminator finds replaced tokens, no other model does"),
    ),
    "permuted": TokenPrediction(
        PERMUTED_TOKENS,
        help="the chosen tokens one after the other in random order, each from the tokens that aren't chosen and the "
        "chosen ones before it, as in XLNet (Yang et al. 2019). No token is replaced. Needs model.positions=relative",
        described="pieces in random order, each from those before it and those that aren't predicted",
        keeps_tokens=True,
        model_setting=("positions", "relative", "only with relative positions are tokens predicted in permuted order"),
    ),
    "both": TokenPrediction(
        BOTH_NEIGHBOURS,
        help="each token twice, from those before it and from those after it, as in ELMo (Peters et al. 2018). Needs "
        "model.layer=lstm",
        described="each next and each previous piece",
        slots_a_token=2,
        keeps_tokens=True,
        model_setting=(
            "layer",
            "lstm",
            "LSTM layers predict each token from both sides separately, no other layers do",
        ),
    ),
}
"""The facts of each prediction, by the value of objective.predict."""
PAIR_QUESTIONS = {
    "next_sentence": Question(
        *("nsp", "NSP", "next-sentence", _MORE_FREQUENT),
        second_segment=("follows the first", "drawn at random"),
        asked_about="next sentences",
    ),
    "sentence_order": Question(
        *("sop", "SOP", "sentence-order", _MORE_FREQUENT),
        second_segment=("follows the first", "comes before the first"),
        asked_about="the order of sentences",
    ),
    "none": None,
}
"""The question about pairs, by the value of objective.pair."""
QUESTIONS = (*(facts.question for facts in PREDICTIONS.values()), *filter(None, PAIR_QUESTIONS.values()), TAGS)
