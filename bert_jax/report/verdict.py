"""A run judged in words: whether it learned more than its baseline knows, and what to do where it didn't."""

import math
from collections.abc import Iterator
from typing import Any, Literal, NamedTuple

from bert_jax.config.wording import counted
from bert_jax.instances.preparation import MOST_UNKNOWN
from bert_jax.report.curves import Curve
from bert_jax.report.facts import RunFacts, score_text
from bert_jax.system.errors import quoted

_FEWEST = 4
"""Evaluations from which on a trend is judged."""
_RISE, _FALL = 0.02, 0.01
"""Shares of the loss above which a rise since its best, and a fall in the last quarter, count."""


class Sentence(NamedTuple):
    """One remark on a run."""

    kind: Literal["good", "note", "problem"]
    text: str


def verdict(facts: RunFacts) -> Iterator[Sentence]:
    """Yields remarks on a run, what matters most first."""
    if facts.origin:
        yield Sentence("note", f"The model was imported from {facts.origin}; it has no training to judge.")
        return
    if not facts.curves.lines:
        yield Sentence("note", "There is no measurement yet: metrics.jsonl has no line that can be read.")
    yield from _against_baseline(facts)
    yield from _other_objectives(facts)
    yield from _faults(facts)
    if facts.curves.lines:
        yield from _trend(facts)
    yield from _progress(facts)
    if unknown := _unknown_share(facts):
        yield Sentence(
            "problem",
            f"{unknown:.1%} of the pieces of the text are unknown to the vocabulary; give one that fits the text.",
        )
    yield from (Sentence("note", problem) for problem in facts.problems)


def nothing_learned(results: dict[str, Any], phase: int) -> str:
    """A remark on a pretrained model that is no better than its baseline, and what to try; empty for others.

    `phase`: the number of the last phase, from 0, as only that can be given more steps.
    """
    if results.get("beats_baseline", True):
        return ""
    return (
        "The model is no better than guessing by frequency alone: it has learned nothing from the context. Train "
        f"for more steps (--phases.{phase}.steps), or try another learning rate "
        "(--optimizer.peak-learning-rate); bert-jax inspect shows what it is trained on."
    )


def nothing_learned_of_task(results: dict[str, Any]) -> str:
    """A remark on a fine-tuned model that is no better than its baseline or predicts one answer; empty for others."""
    baseline = results["baseline"]
    if results["score"] >= 1:
        return ""
    if (constant := results.get("constant_prediction")) is not None:
        found = f"The model predicts {quoted(constant)} for every row"
    elif seeds := results.get("constant_predictions"):
        found = f"{seeds} of {len(results['scores'])} seeds predict one answer for every row"
    elif results["metric"] == "entity_f1" and results["accuracy"] < baseline.get("accuracy", -math.inf):
        found = "The model tags fewer words right than the commonest tag for every word would"
    elif results.get("squared_error", 0) > baseline.get("squared_error", math.inf):
        found = "The squared error is larger than that of the mean for every row"
    elif results["score"] <= baseline.get(results["metric"], -math.inf):
        found = "The model is no better than the baseline, which gives the commonest answer for every row"
    else:
        return ""
    return (
        f"{found}: little or nothing was learned from the texts. Try another learning rate "
        "(--optimizer.peak-learning-rate), more epochs (--task.epochs), more rows, or --seeds 3: "
        "some seeds fail on small sets."
    )


def _against_baseline(facts: RunFacts) -> Iterator[Sentence]:
    value, baseline = facts.held_out(facts.metric), facts.baseline.get(facts.metric)
    if value is None:
        yield Sentence("note", "Nothing was measured on held-out data yet, so nothing can be said of what it learned.")
        return
    remark = _remark(facts)
    if remark:
        yield Sentence("problem", remark)
    elif baseline is not None and value > baseline:
        guess = "the commonest answer for every row" if facts.is_task else "always the commonest piece"
        if not facts.is_task and facts.questions:
            guess = facts.questions[0].guessed_accuracy
        estimated = ", estimated from the training text" if facts.baseline_is_estimated else ""
        yield Sentence(
            "good",
            f"Held-out {facts.label} is {score_text(value)}; the baseline, {guess}, has "
            f"{score_text(baseline)}{estimated}.",
        )
    elif baseline is not None:
        yield Sentence(
            "problem",
            f"Held-out {facts.label} is {score_text(value)} and no better than the baseline's "
            f"{score_text(baseline)}: so far the model has learned nothing from the context.",
        )
    else:
        yield Sentence("note", f"Held-out {facts.label} is {score_text(value)}.")


def _other_objectives(facts: RunFacts) -> Iterator[Sentence]:
    """Remarks on objectives, besides the one that the run is judged by, of which nothing was learned."""
    for question in facts.questions[1:]:
        value, baseline = facts.held_out(question.accuracy), facts.baseline.get(question.accuracy)
        if value is not None and baseline is not None and value <= baseline:
            yield Sentence(
                "problem",
                f"Held-out {question.label} accuracy is {score_text(value)} and no better than the baseline, "
                f"{question.guessed_accuracy}, with {score_text(baseline)}.",
            )


def _remark(facts: RunFacts) -> str:
    """The remark that the command prints at the end of a training; empty if there is none, or no sound results."""
    if not facts.is_task:
        return nothing_learned(facts.results, len(facts.config.phases) - 1)
    try:
        return nothing_learned_of_task(facts.results)
    except (KeyError, TypeError, AttributeError):  # nothing was measured, or results.json is another program's
        return ""


def _faults(facts: RunFacts) -> Iterator[Sentence]:
    recorded, curve = facts.results.get("skipped_steps"), facts.curves.of("train", "skipped")
    skipped = max(recorded if isinstance(recorded, int) else 0, int(curve.last) if curve else 0)
    if skipped:
        yield Sentence("problem", f"{counted(skipped, 'steps')} skipped because a gradient was not finite.")
    if lines := facts.curves.without_loss:
        yield Sentence(
            "problem",
            f"No finite loss in {counted(lines, 'lines')} of the training's log; lower the peak learning rate.",
        )
    if facts.events and facts.events[-1].event == "failed" and not facts.is_finished:
        yield Sentence("problem", f"The run failed at its last start: {facts.events[-1].message}.")


def _trend(facts: RunFacts) -> Iterator[Sentence]:
    """A remark on the held-out loss or, of a task, on the score."""
    name = "score" if facts.is_task else "loss"
    curve = facts.curves.of("eval", name)
    if not curve:
        return
    if len(curve.steps) < _FEWEST:
        yield Sentence(
            "note", f"With {counted(len(curve.steps), 'held-out measurements')} nothing can be said of the trend."
        )
    elif not facts.is_task:
        yield _loss_trend(curve)
    elif (best := int(curve.values.argmax())) < len(curve.steps) - 1:
        yield Sentence(
            "note",
            f"The best {facts.label} was that of step {curve.steps[best]:,}, whose checkpoint is used; "
            "longer training brought nothing.",
        )


def _loss_trend(curve: Curve) -> Sentence:
    best, last = int(curve.values.argmin()), curve.last
    least, at = float(curve.values[best]), int(curve.steps[best])
    quarter = float(curve.values[-max(2, len(curve.steps) // 4) - 1])
    if last - least > _RISE * abs(least):
        return Sentence(
            "problem",
            f"Held-out loss has risen from {score_text(least)} at step {at:,} to {score_text(last)}: the model "
            "overfits. Stop earlier, or give more text.",
        )
    if quarter - last > _FALL * abs(quarter):
        return Sentence(
            "note",
            f"Held-out loss was still falling, from {score_text(quarter)} to {score_text(last)} in the last quarter "
            "of the evaluations: longer training would lower it further.",
        )
    return Sentence("good", f"Held-out loss has levelled off at {score_text(last)}.")


def _progress(facts: RunFacts) -> Iterator[Sentence]:
    if facts.is_finished and facts.step < facts.steps:
        yield Sentence("note", f"It ended early, after {facts.step:,} of {facts.steps:,} steps.")
    elif not facts.is_finished:
        yield Sentence("note", f"The run is not finished: {facts.step:,} of {facts.steps:,} steps are done.")


def _unknown_share(facts: RunFacts) -> float | None:
    """The share of unknown pieces in the training text if it is large."""
    shares = [data.train.unknown_share for data in facts.prepared.values()]
    return max(shares) if shares and max(shares) > MOST_UNKNOWN else None
