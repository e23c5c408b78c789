"""The answer to a question in a text (the original's run_squad.py)."""

import functools
import math
from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Bool, Float

from bert_jax.batching.sequences import joined
from bert_jax.config.task import SpanConfig, TaskConfig
from bert_jax.finetuning.character_spans import CONVERTED, CharacterOffsets, characters_of, pieces_of
from bert_jax.finetuning.columns import text, whole_number
from bert_jax.finetuning.metrics import answer_metrics, scored
from bert_jax.finetuning.task import EMPTY, Example, Outcome, Prediction, Task, Wrong, probabilities
from bert_jax.records.record import Record
from bert_jax.run.results import Results
from bert_jax.system.errors import UsageError, json_kind
from bert_jax.text.tokenizer import Tokenizer
from bert_jax.text.vocabulary import PieceSpan

_ELSEWHERE = "questions whose answer is not in the text where it should be, not learned from"
_DROPPED = "questions whose answer has no piece, not learned from"
_QUESTION = "questions longer than {} pieces, cut"


class TextWindow(NamedTuple):
    """A window of a text, which an example holds."""

    window: range
    """Indices of the window's pieces in the text."""
    best_context: Bool[np.ndarray, " N"]
    """For each piece of the window, whether it has its best context in this window. Only such a piece may begin an
    answer."""
    spans: Sequence[PieceSpan]
    """The pieces of the whole text."""
    offset: int
    """Position of the window's first piece in the sequence."""
    null: int = 0
    """Position of [CLS], which stands for no answer."""


def text_windows(count: int, most: int, stride: int) -> list[range]:
    """Windows of at most `most` pieces over `count` pieces.

    Each begins `stride` pieces after the one before. The last window ends with the last piece.
    """
    ranges = [range(min(most, count))]
    while ranges[-1].stop < count:
        begin = ranges[-1].start + min(most, stride)
        ranges.append(range(begin, min(begin + most, count)))
    return ranges


def with_best_context(all_windows: Sequence[range], count: int) -> list[Bool[np.ndarray, " N"]]:
    """For each window, which of its pieces have their best context in it.

    A piece has its best context in the window with the largest min(pieces to its left, pieces to its right) + 0.01 x
    window size, as in the original's run_squad.py. The first of several such windows counts.
    """
    best, best_scores = np.zeros(count, int), np.full(count, -np.inf)
    for number, window in enumerate(all_windows):
        inside, here = np.arange(len(window)), slice(window.start, window.stop)
        scores = np.minimum(inside, len(window) - 1 - inside) + 0.01 * len(window)
        better = scores > best_scores[here]
        best[here][better] = number
        best_scores[here][better] = scores[better]
    return [best[window.start : window.stop] == number for number, window in enumerate(all_windows)]


class _Candidate(NamedTuple):
    score: float
    """Sum of the scores of the answer's first and last token."""
    begin: int
    """Position of the answer's first character in the text."""
    end: int


class BestSpans:
    """Collects candidates of all windows and picks the answer."""

    def __init__(self, text: str, config: SpanConfig):
        self._text, self._config = text, config
        self._candidates: list[_Candidate] = []
        self._null = math.inf

    def add(self, part: TextWindow, logits: Float[np.ndarray, "T 2"]) -> None:
        """Adds the candidates of one window: pairs of its best first and last tokens."""
        self._null = min(self._null, float(logits[part.null].sum()))
        firsts, lasts = (np.argsort(-scores, kind="stable")[: self._config.best] - part.offset for scores in logits.T)
        size = len(part.window)
        for first in firsts.tolist():
            if not (0 <= first < size and part.best_context[first]):
                continue
            for last in lasts.tolist():
                if first <= last < min(size, first + self._config.answer_length):
                    score = logits[first + part.offset, 0] + logits[last + part.offset, 1]
                    begin, end = characters_of(self._text, part.spans, part.window[first], part.window[last])
                    if begin < end:  # the piece of a boundary alone stands for no characters
                        self._candidates.append(_Candidate(float(score), begin, end))

    def prediction(self) -> Prediction:
        """The predicted answer, the best answers, and the odds of no answer.

        `predicted_answer` comes with its `probability`. Each of the `best` answers has its text, probability, begin and
        end in characters. `null_odds` is the score of no answer, the lowest over all windows, minus the best answer's
        score. It is None if every question has an answer.
        """
        listed = self._listed()
        shares = probabilities(np.array([one.score for one in listed])).tolist() if listed else []
        best = [
            {"text": self._text[one.begin : one.end], "probability": share, "begin": one.begin, "end": one.end}
            for one, share in zip(listed, shares, strict=True)
        ]
        chosen, odds = next((one for one in best if one["text"]), None), None
        if self._config.null_answers:
            odds = self._null - max((one.score for one in self._candidates), default=0.0)
            if odds > self._config.null_threshold:
                chosen = next((one for one in best if not one["text"]), None)
        return {
            "predicted_answer": chosen["text"] if chosen else "",
            "probability": chosen["probability"] if chosen else 0.0,
            "best": best,
            "null_odds": odds,
        }

    def _listed(self) -> list[_Candidate]:
        """The best candidates, in descending order of score. Of candidates with equal text only the best is listed.

        With task.span.null_answers they include "no answer", which comes last if it isn't among the best.
        """
        candidates = sorted(self._candidates, key=lambda one: -one.score)
        if self._config.null_answers:
            candidates.append(_Candidate(self._null, 0, 0))
            candidates.sort(key=lambda one: -one.score)
        different: dict[str, _Candidate] = {}
        for one in candidates:
            different.setdefault(self._text[one.begin : one.end], one)
            if len(different) == self._config.best:
                break
        if self._config.null_answers:
            different.setdefault("", _Candidate(self._null, 0, 0))
        return list(different.values())


class _Answer(NamedTuple):
    text: str
    start: object
    """Position of the answer's first character as the row gives it, not checked yet."""


class SpanTask(Task[list[str]]):
    """[CLS] question [SEP] window of the text [SEP].

    The target of a window that doesn't hold the whole answer is [CLS].
    """

    def __init__(self, config: TaskConfig, tokenizer: Tokenizer):
        super().__init__(config, tokenizer)
        # Questions about one text follow each other, so its pieces are cached.
        self._spans = functools.lru_cache(maxsize=4)(tokenizer.encode_spans)

    def examples(self, record: Record, repairs: Counter[str], train: bool) -> list[Example]:
        """An example for each window of the text, with a TextWindow as `origin`.

        Training skips a record with an empty question or text.
        """
        longest = self.config.span.question_length
        question, context = (text(record, template) for template in self.config.texts)
        question_ids, spans = self._tokenizer.encode(question), self._spans(context)
        empty = not (question_ids and spans)
        repairs[EMPTY] += empty
        repairs[_QUESTION.format(longest)] += len(question_ids) > longest
        if not train:
            return self._windows(question_ids[:longest], spans)
        answer = None if empty else self._pieces(record, context, spans, repairs)
        return [] if answer is None else self._targeted(self._windows(question_ids[:longest], spans), answer)

    def _windows(self, question: list[int], spans: Sequence[PieceSpan]) -> list[Example]:
        """Builds one example for each window, without a target."""
        vocabulary = self._tokenizer.vocabulary
        room = self.config.max_length - len(question) - 2 - vocabulary.separators
        ranges = text_windows(len(spans), room, self.config.span.stride)
        examples = []
        for window, best_context in zip(ranges, with_best_context(ranges, len(spans)), strict=True):
            pieces = [piece.id for piece in spans[window.start : window.stop]]
            sequence = joined((question, pieces), vocabulary, self.config.max_length)
            null = 0 if vocabulary.class_token == "first" else len(sequence.ids) - 1
            origin = TextWindow(window, best_context, spans, sequence.first_length, null)
            examples.append(Example((sequence,), origin=origin))
        return examples

    def _targeted(self, examples: list[Example], answer: range) -> list[Example]:
        """`examples` with targets: the positions of `answer`'s first and last piece in the sequence.

        Both are the position of [CLS] if the window doesn't hold the whole answer.
        """
        targeted = []
        for example in examples:
            window, offset = example.origin.window, example.origin.offset
            inside = len(answer) and window.start <= answer.start and answer.stop <= window.stop
            first = answer.start - window.start + offset if inside else example.origin.null
            last = first + len(answer) - 1 if inside else first
            targeted.append(example._replace(target=(first, last), origin=None))
        return targeted

    def _pieces(self, record: Record, context: str, spans: Sequence[PieceSpan], repairs: Counter[str]) -> range | None:
        """The pieces of the first answer; an empty range if the question has none; None if it can't be learned from."""
        answers = self._answers(record)
        if not answers:
            return range(0)
        answer, start = answers[0]
        begin = whole_number(record, "answer_start", start, repairs)
        begin, answer = begin + len(answer) - len(answer.lstrip()), answer.strip()
        if begin < 0 or not answer or context[begin : begin + len(answer)] != answer:
            begin = CharacterOffsets(context)(begin)
            if not answer or context[begin : begin + len(answer)] != answer:
                repairs[_ELSEWHERE] += 1
                return None
            repairs[CONVERTED] += 1
        pieces = pieces_of(spans, begin, begin + len(answer))
        repairs[_DROPPED] += not pieces
        return pieces or None

    def gold(self, record: Record) -> list[str]:
        """All right answers; empty if the question has none."""
        return [answer.text for answer in self._answers(record)]

    def _answers(self, record: Record) -> list[_Answer]:
        """The answers of a record. Raises UsageError if there are none and each question must have one."""
        written = [] if _is_impossible(record) else record.value(self.config.label)
        answers = _answers_of(written)
        if answers is None:
            raise UsageError(
                f"{record.place}: {self.config.label!r} is {json_kind(written)}; expected [{{text, answer_start}}, ...]"
            )
        if not answers and not self.config.span.null_answers:
            raise UsageError(f"{record.place} has no answer; leave it out, or finetune with --task.span.null-answers")
        return answers

    def predict(self, record: Record, examples: Sequence[Example], outputs: Sequence[np.ndarray]) -> Prediction:
        """The best answer in all windows, the next best answers, and the odds of no answer."""
        best = BestSpans(text(record, self.config.texts[1]), self.config.span)
        for example, logits in zip(examples, outputs, strict=True):
            best.add(example.origin, logits[: example.size].astype(np.float64))
        return best.prediction()

    def measure(self, golds: Sequence[list[str]], predictions: Sequence[Prediction]) -> Results:
        """The metrics of `answer_metrics`."""
        return Results.model_validate(answer_metrics(golds, predictions, self.config.span.by_character))

    def row_outcomes(self, golds: Sequence[list[str]], predictions: Sequence[Prediction]) -> dict[str, Any]:
        return {}

    def mistake(self, outcome: Outcome, gold: list[str], prediction: Prediction) -> Wrong | None:
        """The predicted answer, if `gold` doesn't have it. The mistake's size is 1 minus its F1."""
        predicted = prediction["predicted_answer"]
        _, f1 = scored(gold, predicted, self.config.span.by_character)
        right = ", or ".join(dict.fromkeys(gold)) or "no answer"
        return Wrong(1 - f1, right, predicted or "no answer", prediction["probability"]) if f1 < 1 else None

    def baseline(self, golds: Sequence[list[str]]) -> list[Prediction]:
        """Predicts no answer for every question."""
        odds = 0.0 if self.config.span.null_answers else None
        return [{"predicted_answer": "", "best": [], "null_odds": odds}] * len(golds)

    @classmethod
    def columns(cls, config: TaskConfig, record: Record) -> list[str]:
        """All columns that are read, including the one that says whether there is an answer."""
        return [*super().columns(config, record), "is_impossible"]

    @classmethod
    def is_labelled(cls, config: TaskConfig, record: Record) -> bool:
        """Whether the row has answers, or a column that says whether there are any."""
        return super().is_labelled(config, record) or not record.has(config.label) and record.has("is_impossible")


def _is_impossible(record: Record) -> bool:
    """Whether the row says that its question has no answer.

    Raises UsageError for a value that is neither true nor false.
    """
    value = record.value("is_impossible") if record.has("is_impossible") else False
    if value not in (False, True):
        raise UsageError(f"{record.place}: 'is_impossible' is {value!r:.60}; expected true or false, without quotes")
    return bool(value)


def _answers_of(written: object) -> list[_Answer] | None:
    """The answers in `written`; None if it is something else.

    Answers are a list of objects, as in SQuAD's files, or an object of lists, as in sets of TFDS and Hugging Face.
    """
    if isinstance(written, dict):
        texts, starts = written.get("text"), written.get("answer_start")
        if not (isinstance(texts, list) and isinstance(starts, list) and len(texts) == len(starts)):
            return None
        answers = [_Answer(*each) for each in zip(texts, starts, strict=True)]
    elif isinstance(written, list) and all(isinstance(each, dict) for each in written):
        answers = [_Answer(each.get("text"), each.get("answer_start")) for each in written]
    else:
        return None
    return answers if all(isinstance(answer.text, str) for answer in answers) else None
