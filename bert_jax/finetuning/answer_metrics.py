"""Metrics of answers: exact match and F1 as in SQuAD's official script (evaluate-v2.0.py), as shares of 1."""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from bert_jax.text.scripts import sets_no_spaces

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_ASCII_PUNCTUATION = frozenset(string.punctuation)


def answer_metrics(
    golds: Sequence[Sequence[str]], predictions: Sequence[dict[str, Any]], by_character: bool
) -> dict[str, float]:
    """`exact_match` and `f1`, each by the best of a question's `golds`; a question without an answer has none.

    `predictions` are those of BestSpans. With null odds also both metrics of the questions with (`answerable_`) and
    without an answer (`unanswerable_`), if there are any, and `best_f1` with its threshold of the odds,
    `best_f1_threshold`.
    """
    pairs = list(zip(golds, predictions, strict=True))
    scores = np.array([scored(gold, one["predicted_answer"], by_character) for gold, one in pairs]).reshape(-1, 2)
    found = {"exact_match": _mean(scores[:, 0]), "f1": _mean(scores[:, 1])}
    if not pairs or predictions[0]["null_odds"] is None:
        return found
    answerable = np.array([any(gold) for gold in golds])
    for name, chosen in (("answerable", answerable), ("unanswerable", ~answerable)):
        if chosen.any():
            found[f"{name}_exact_match"], found[f"{name}_f1"] = (_mean(scores[chosen, place]) for place in (0, 1))
    texts = [next((answer["text"] for answer in one["best"] if answer["text"]), "") for one in predictions]
    f1_of_texts = np.array([scored(gold, text, by_character)[1] for gold, text in zip(golds, texts, strict=True)])
    odds = np.array([one["null_odds"] for one in predictions])
    found["best_f1"], found["best_f1_threshold"] = _best(f1_of_texts, ~answerable, odds)
    return found


def scored(golds: Sequence[str], answer: str, by_character: bool) -> tuple[float, float]:
    """Exact match and F1 of an answer, each with the gold answer that is best for it."""
    golds = [gold for gold in golds if normalised(gold, by_character)] or [""]
    exact = max(float(normalised(gold, by_character) == normalised(answer, by_character)) for gold in golds)
    return exact, max(_f1(words(gold, by_character), words(answer, by_character)) for gold in golds)


def normalised(text: str, by_character: bool) -> str:
    """In lower case, without punctuation (of any script where `by_character`) and articles, single-spaced."""
    letters = (character for character in text.lower() if not _is_punctuation(character, by_character))
    return " ".join(_ARTICLES.sub(" ", "".join(letters)).split())


def words(text: str, by_character: bool) -> list[str]:
    """What F1 counts: words, or where `by_character` each character of a script that sets no spaces."""
    plain = normalised(text, by_character)
    if by_character:
        plain = "".join(f" {character} " if sets_no_spaces(character) else character for character in plain)
    return plain.split()


def _f1(gold: list[str], answer: list[str]) -> float:
    if not gold or not answer:
        return float(gold == answer)
    common = sum((Counter(gold) & Counter(answer)).values())
    return 2 * common / (len(gold) + len(answer))


def _is_punctuation(character: str, by_character: bool) -> bool:
    every = by_character and unicodedata.category(character).startswith("P")
    return every or character in _ASCII_PUNCTUATION


def _best(f1: np.ndarray, unanswerable: np.ndarray, odds: np.ndarray) -> tuple[float, float]:
    """The best mean F1 and its threshold: questions with larger null odds get no answer."""
    order = np.argsort(odds, kind="stable")
    gains = np.concatenate([[0.0], np.cumsum(f1[order] - unanswerable[order])])
    last = np.append(odds[order][1:] != odds[order][:-1], True)  # a threshold takes all of the same odds
    gains[1:][~last] = -np.inf
    best = int(gains.argmax())
    total = float(unanswerable.sum() + gains[best]) / len(f1)
    return total, float(odds[order][best - 1]) if best else float(odds.min() - 1.0)


def _mean(values: np.ndarray) -> float:
    return float(values.mean()) if len(values) else 0.0
