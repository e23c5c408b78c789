"""A run judged in words: whether it learned more than its baseline knows, and what to do where it didn't."""

from collections.abc import Iterator
from typing import Literal, NamedTuple

from bert_jax.config.wording import counted
from bert_jax.instances.preparation import MOST_UNKNOWN
from bert_jax.products.report.run_summary import RunSummary
from bert_jax.run.curves import Curve
from bert_jax.run.remarks import (
    adaptation,
    behind_words,
    nothing_learned,
    nothing_learned_of_task,
    score_text,
    unlearned_classes,
    worse_than_before,
)

_FEWEST = 4
"""Fewest evaluations from which a trend is judged."""
_RISE, _FALL = 0.02, 0.01
"""Shares of the loss. A rise since the best loss, or a fall in the last quarter, counts if it is larger."""


class Sentence(NamedTuple):
    """One remark on a run."""

    kind: Literal["good", "note", "problem"]
    text: str


def verdict(summary: RunSummary) -> Iterator[Sentence]:
    """Yields remarks on a run, the most important first."""
    if summary.origin:
        yield Sentence("note", f"The model was imported from {summary.origin}; it has no training to judge.")
        return
    if not summary.curves.lines:
        yield Sentence("note", "There is no measurement yet: metrics.jsonl has no line that can be read.")
    yield from _against_baseline(summary)
    yield from _other_objectives(summary)
    if unlearned := unlearned_classes(summary.results):
        yield Sentence("problem", unlearned)
    yield from _faults(summary)
    if summary.curves.lines:
        yield from _trend(summary)
    yield from _progress(summary)
    if unknown := _unknown_share(summary):
        yield Sentence(
            "problem",
            f"{unknown:.1%} of the pieces of the text are unknown to the vocabulary; give one that fits the text.",
        )
    yield from (Sentence("note", problem) for problem in summary.problems)


def _against_baseline(summary: RunSummary) -> Iterator[Sentence]:
    value, baseline = summary.held_out(summary.metric), summary.baseline.get(summary.metric)
    if value is None:
        yield Sentence("note", "Nothing was measured on held-out data yet, so nothing can be said of what it learned.")
        return
    best = summary.best_baseline(summary.metric)
    if summary.is_task:
        remark = nothing_learned_of_task(summary.results)
    else:
        remark = nothing_learned(summary.results, len(summary.config.phases) - 1)
        if adapted := adaptation(summary.results):
            yield Sentence("problem" if worse_than_before(summary.results) else "note", adapted)
    if remark:
        yield Sentence("problem", remark)
    elif behind := behind_words(summary.metric, value, summary.word_baselines, summary.results.cut_texts):
        yield Sentence("note", behind)
    elif summary.word_baselines and best:
        known = f"{best[0]}, which compares words alone, has {score_text(best[1])}"
        yield Sentence("good", f"Held-out {summary.label} is {score_text(value)}; {known}.")
    elif baseline is not None and value <= baseline and _beats_by_loss(summary):
        yield Sentence(
            "note",
            f"Held-out {summary.label} is {score_text(value)}, not yet above the baseline's {score_text(baseline)}; "
            "the loss is better than the baseline's.",
        )
    elif baseline is not None and value > baseline:
        guess = "the most frequent answer for every row" if summary.is_task else "always the most frequent piece"
        if not summary.is_task and summary.questions:
            guess = summary.questions[0].guessed_accuracy
        estimated = ", estimated from the training text" if summary.baseline_is_estimated else ""
        yield Sentence(
            "good",
            f"Held-out {summary.label} is {score_text(value)}; the baseline, {guess}, has "
            f"{score_text(baseline)}{estimated}.",
        )
    elif baseline is not None:
        yield Sentence(
            "problem",
            f"Held-out {summary.label} is {score_text(value)} and no better than the baseline's "
            f"{score_text(baseline)}: so far the model has learned nothing from the context.",
        )
    else:
        yield Sentence("note", f"Held-out {summary.label} is {score_text(value)}.")


def _beats_by_loss(summary: RunSummary) -> bool:
    """Whether the loss of a pretraining's first objective is lower than the baseline's."""
    if not summary.questions:
        return False
    loss, baseline = summary.held_out(summary.questions[0].loss), summary.baseline.get(summary.questions[0].loss)
    return loss is not None and baseline is not None and loss < baseline


def _other_objectives(summary: RunSummary) -> Iterator[Sentence]:
    """Remarks on objectives, other than the main one, from which the model learned nothing."""
    for question in summary.questions[1:]:
        value, baseline = summary.held_out(question.accuracy), summary.baseline.get(question.accuracy)
        if value is not None and baseline is not None and value <= baseline:
            yield Sentence(
                "problem",
                f"Held-out {question.label} accuracy is {score_text(value)} and no better than the baseline, "
                f"{question.guessed_accuracy}, with {score_text(baseline)}.",
            )


def _faults(summary: RunSummary) -> Iterator[Sentence]:
    curve = summary.curves.of("train", "skipped")
    skipped = max(summary.results.skipped_steps, int(curve.last) if curve else 0)
    if skipped:
        yield Sentence("problem", f"{counted(skipped, 'steps')} skipped because a gradient was not finite.")
    if lines := summary.curves.without_loss:
        yield Sentence(
            "problem",
            f"No finite loss in {counted(lines, 'lines')} of the training's log; lower the peak learning rate.",
        )
    if summary.events and summary.events[-1].event == "failed" and not summary.is_finished:
        yield Sentence("problem", f"The run failed at its last start: {summary.events[-1].message.rstrip('.')}.")
    if lost := summary.curves.lost_evaluations:
        yield Sentence(
            "problem",
            f"The held-out loss was not finite in the last {counted(lost, 'evaluations')}; lower the peak learning "
            "rate (--optimizer.peak-learning-rate).",
        )


def _trend(summary: RunSummary) -> Iterator[Sentence]:
    name = "score" if summary.is_task else "loss"
    curve = _of_last_phase(summary, summary.curves.of("eval", name))
    if not curve or summary.curves.lost_evaluations:
        return
    if len(curve.steps) < _FEWEST:
        yield Sentence(
            "note", f"With {counted(len(curve.steps), 'held-out measurements')} nothing can be said of the trend."
        )
    elif not summary.is_task:
        yield _loss_trend(curve, summary.curves.of("train", "loss"))
    elif (best := int(curve.values.argmax())) < len(curve.steps) - 1:
        used = "; that checkpoint is used" if summary.is_finished else ""
        changed = "Later steps did not improve it." if curve.last < curve.values[best] else "It hasn't changed since."
        yield Sentence("note", f"{summary.label} was best at step {curve.steps[best]:,}{used}. {changed}")


def _of_last_phase(summary: RunSummary, curve: Curve) -> Curve:
    """The evaluations in the newest phase that has begun: other phases may have other held-out data."""
    starts = [summary.config.steps_of(number).start for number in range(len(summary.config.phases))]
    begun = max((start for start in starts if start < summary.step), default=0)
    inside = curve.steps > begun
    return Curve(curve.steps[inside], curve.values[inside])


def _loss_trend(curve: Curve, training: Curve) -> Sentence:
    best, last = int(curve.values.argmin()), curve.last
    least, at = float(curve.values[best]), int(curve.steps[best])
    before = max(2, len(curve.steps) // 4)
    earlier, step = float(curve.values[-before - 1]), int(curve.steps[-before - 1])
    if min(curve.values[-2:]) - least > _RISE * abs(least) and last > curve.values[-2] * (1 - _FALL):
        after = training.values[training.steps > at]
        until = training.values[training.steps <= at]
        overfits = not len(after) or not len(until) or after[-1] < until[-1]
        advice = (
            "the model overfits. Stop earlier, or give more text."
            if overfits
            else "so has the loss in training: lower the peak learning rate (--optimizer.peak-learning-rate)."
        )
        return Sentence(
            "problem",
            f"Held-out loss has risen from {score_text(least)} at step {at:,} to {score_text(last)}; {advice}",
        )
    if earlier - last > _FALL * abs(earlier):
        return Sentence(
            "note",
            f"Held-out loss was still falling, from {score_text(earlier)} at step {step:,} to {score_text(last)}: "
            "longer training may lower it further.",
        )
    above = f", above its lowest value, {score_text(least)} at step {at:,}" if last - least > _RISE * abs(least) else ""
    return Sentence("note", f"Held-out loss has levelled off at {score_text(last)}{above}.")


def _progress(summary: RunSummary) -> Iterator[Sentence]:
    if summary.is_finished and summary.step < summary.steps:
        yield Sentence("note", f"It ended early, after {summary.step:,} of {summary.steps:,} steps.")
    elif not summary.is_finished and summary.step >= summary.steps:
        yield Sentence(
            "note",
            "All steps are done, but results.json is missing, damaged or of an earlier step; give the command of the "
            "training again to measure the run.",
        )
    elif not summary.is_finished:
        yield Sentence("note", f"The run is not finished: {summary.step:,} of {summary.steps:,} steps are done.")


def _unknown_share(summary: RunSummary) -> float | None:
    shares = [data.train.unknown_share for data in summary.prepared.values()]
    return max(shares) if shares and max(shares) > MOST_UNKNOWN else None
