"""Finished trainings in words: names and tables of measurements, remarks on models that learned nothing."""

import math
import re
from collections.abc import Mapping

from bert_jax.config.prediction import QUESTIONS
from bert_jax.config.vectors import MANY_CUT
from bert_jax.run.results import Results
from bert_jax.system.errors import quoted

_COUNTS = ("sequences", "predicted_tokens")
"""Counts that the table by language shows."""


def score_text(value: float, decimals: int = 3) -> str:
    """A metric or a loss with `decimals` decimals; a value of a million or more with three digits."""
    return f"{value:.{decimals}f}" if abs(value) < 1e6 else f"{value:.3g}"


def name_in_words(name: str) -> str:
    """A measurement's name for a reader: "MLM accuracy" for mlm_accuracy, "macro F1" for macro_f1, "nDCG@10, width 64"
    for 64/ndcg@10."""
    width, _, name = name.rpartition("/")
    if width:
        return f"{name_in_words(name)}, width {width}"
    for question in QUESTIONS:
        if name in (question.loss, question.accuracy):
            return f"{question.label} {'loss' if name == question.loss else 'accuracy'}"
    return re.sub(r"\bf1\b", "F1", name.replace("_", " ").replace("ndcg@", "nDCG@"))


def by_language(
    measured: Mapping[str, float | int], baseline: Mapping[str, float]
) -> tuple[list[str], list[list[str]]]:
    """The headings and lines of a table with a line for each language; `measured` has measurements like results.json.
    There are no lines if no measurement is by language. If `baseline` is empty, its columns are empty."""
    asked = (name for question in QUESTIONS for name in (question.loss, question.accuracy))
    names, lines = [name for name in asked if not baseline or name in baseline], []
    for language in sorted({name.partition("/")[0] for name in measured if "/" in name}):
        counts = [_cell(measured, f"{language}/{name}") for name in _COUNTS]
        scores = [_cell(values, f"{language}/{name}") for name in names for values in (measured, baseline)]
        lines.append([language, *counts, *scores])
    headings = [heading for name in names for heading in (name_in_words(name), "by frequency")]
    return ["language", *(name.replace("_", " ") for name in _COUNTS), *headings], lines


def _cell(values: Mapping[str, float | int], name: str) -> str:
    value = values.get(name)
    return "" if value is None else f"{value:,}" if isinstance(value, int) else score_text(value)


def nothing_learned(results: Results, phase: int | None) -> str:
    """A remark on a pretrained model that is no better than its baseline, and what to try; empty for others.

    `phase`: the number of the last phase, from 0, the only one whose steps may still be raised. None: the text that was
    measured isn't the run's.
    """
    if results.beats_baseline:
        return ""
    if phase is None:
        return "The model predicts this text no better than guessing by frequency alone does."
    return (
        "The model is no better than guessing by frequency alone: it has learned nothing from the context. Train "
        f"for more steps (--phases.{phase}.steps), or try another learning rate "
        "(--optimizer.peak-learning-rate); bert-jax inspect shows what it is trained on."
    )


def adaptation(results: Results) -> str:
    """A remark on what a pretraining made of the trained model that it began with; empty for others."""
    figures = _adapted_figures(results)
    return worse_than_before(results) or (f"Held-out text: {figures}." if figures else "")


def worse_than_before(results: Results) -> str:
    """A remark on a pretrained model that is worse than the one that it began with; empty for others."""
    figures, bits = _adapted_figures(results), "bits_per_character"
    if not figures or results.metrics[bits] < results.started_from[bits]:
        return ""
    return (
        f"The model is worse than the one that it began with: {figures}. Give a lower rate "
        "(--optimizer.peak-learning-rate) or more steps, or use the initial model."
    )


def _adapted_figures(results: Results) -> str:
    start, now = results.started_from, results.metrics
    if "bits_per_character" not in start or "bits_per_character" not in now:
        return ""
    before, after = start["bits_per_character"], now["bits_per_character"]
    figures = f"{before:.3f} bits per character before the training, {after:.3f} after it, on the same text and masks"
    if "mean_cosine" in start and "mean_cosine" in now:
        figures += f"; mean cosine of different texts {start['mean_cosine']:.3f} and {now['mean_cosine']:.3f}"
    return figures


def nothing_learned_of_task(results: Results) -> str:
    """A remark on a fine-tuned model that is no better than its baseline, predicts one answer, or predicts numbers of a
    wrong scale; empty for others. It is also empty for vectors of texts, whose baselines compare words: see
    `behind_words`."""
    metrics, metric, score, baseline = results.metrics, results.metric, results.score, results.baseline
    if metric is None or score is None or baseline is None or score >= 1 or results.baselines:
        return ""
    if results.constant_prediction is not None:
        found = f"The model predicts {quoted(results.constant_prediction)} for every row"
    elif metric == "entity_f1" and metrics.get("accuracy", math.inf) < baseline.get("accuracy", -math.inf):
        found = "Giving every word the most frequent tag would be right more often than the model"
    elif score <= baseline.get(metric, -math.inf):
        constant = "mean of the numbers" if "squared_error" in baseline else "most frequent answer"
        found = f"The model is no better than the baseline, which gives the {constant} for every row"
    elif metrics.get("squared_error", 0) > baseline.get("squared_error", math.inf):
        return (
            "The squared error is larger than that of the mean for every row. A correlation doesn't show that: the "
            "order of the numbers may be right while their scale isn't. More epochs (--task.epochs) may help."
        )
    else:
        return ""
    return (
        f"{found}: little or nothing was learned from the texts. Try another learning "
        "rate (--optimizer.peak-learning-rate), more epochs (--task.epochs), more rows, or --seeds 3: some seeds fail "
        "on small sets."
    )


def unlearned_classes(results: Results) -> str:
    """A remark on the classes that the model never predicts or never gets right; empty if there are none."""
    unlearned = results.unlearned
    if not unlearned or results.constant_prediction is not None:
        return ""
    weights = "" if "micro_f1" in results.metrics else ", --task.class-weights balanced"  # not for several labels a row
    return (
        f"{unlearned[:1].upper()}{unlearned[1:]}. More epochs (--task.epochs){weights} or more of their rows may help."
    )


def behind_words(
    metric: str,
    score: float,
    baselines: Mapping[str, Mapping[str, float]],
    cut_texts: Mapping[str, float],
    trained: bool = True,
) -> str:
    """A remark on vectors of texts that score no better than a comparison of words alone; empty if they score better.

    `baselines`: the metrics of each comparison. `cut_texts`: numbers of `texts`, of `cut` ones, and of their `pieces`.
    `trained`: whether the figures are of a training, whose settings can be changed.
    """
    known = {name: measured[metric] for name, measured in baselines.items() if metric in measured}
    best = max(known, key=lambda name: known[name], default=None)
    if best is None or score > known[best]:
        return ""
    texts, cut = cut_texts.get("texts", 0), cut_texts.get("cut", 0)
    advice = remedy = ""
    if trained:
        advice = "More pairs, more epochs (--task.epochs) or larger batches (--task.batch-size) may help."
        remedy = ": raise --task.max-length first, or give shorter texts"
    if cut > MANY_CUT * texts:
        advice = (
            f"{cut:,.0f} of {texts:,.0f} texts were cut to {cut_texts.get('pieces', 0):.0f} pieces, and {best} reads "
            f"them whole{remedy}."
        )
    return (
        f"{best}, which compares words alone, has {metric} {score_text(known[best])}; the model has "
        f"{score_text(score)}. {advice}"
    ).strip()
