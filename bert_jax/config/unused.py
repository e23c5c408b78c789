"""Settings that have no effect because of other settings."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from bert_jax.config.objective import MASK_SETTINGS
from bert_jax.config.prediction import PREDICTIONS
from bert_jax.config.settings import Settings
from bert_jax.config.vectors import VectorsConfig
from bert_jax.system.errors import Setting, UsageError


def refuse_unused(config: Settings, settings: Mapping[str, Any]) -> None:
    """Raises UsageError if a setting of `settings`, which the user wrote by dotted name, has no effect in `config`."""
    for names, reason in _unused(config.flat()):
        if name := next(filter(re.compile(names).fullmatch, settings), None):
            raise UsageError(f"{Setting(name, settings[name])} has no effect: {reason}; leave it out")


def _unused(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields patterns for names of settings without effect, with the reason. `values`: all settings by dotted name."""
    file, init, predict = values.get("vocabulary.file"), values.get("init"), values.get("objective.predict")
    teacher, exchange = values.get("teacher"), values.get("vocabulary.exchange")
    if teacher and not file and (exchange or not init):
        yield (
            r"vocabulary\.(?!file|exchange|initial_rows).*",
            f"the vocabulary of {Setting('teacher', teacher)}, with its cleaning of text, is taken",
        )
    if init and not exchange:
        reason = f"the vocabulary of {Setting('init', init)}, with its cleaning of text, is taken; "
        other = (
            f"{Setting('vocabulary.file')} names an extended one, {Setting('vocabulary.exchange')} puts another there"
        )
        yield r"vocabulary\.(?!file|exchange).*", f"{reason}{other}"
    if not exchange:
        yield (
            r"vocabulary\.initial_rows",
            f"it needs a vocabulary in place of the model's, as by {Setting('vocabulary.size')}",
        )
    if file:
        shown = Setting("vocabulary.file", file)
        yield r"vocabulary\.(kind|size|character_coverage|sample_megabytes)", f"the pieces of {shown} are taken"
        if file.endswith((".json", ".model")):
            yield r"vocabulary\.(lowercase|strip_accents|unicode_form)", f"{shown} says how text is cleaned"
    longer = " (to train a run for longer, give the run itself in place of the config)"
    if minutes := values.get("minutes"):
        yield r"phases\.0\.steps", f"it is fitted to {Setting('minutes', minutes)}{longer}"
    elif "passes" in values:
        yield r"phases\.0\.steps", f"the steps follow from the words of the text and {Setting('passes')}{longer}"
    for name, schedule in {"power": "polynomial", "decay_share": "warmup_stable_decay"}.items():
        if values.get("optimizer.schedule") != schedule:
            yield rf"optimizer\.{name}", f"it needs {Setting('optimizer.schedule', schedule)}"
    if predict != "replaced":
        yield r"objective\.(generator|discriminator)_weight", f"it needs {Setting('objective.predict', 'replaced')}"
    if not values.get("objective.tags"):
        yield r"objective\.tags_(weight|hash)", f"it needs {Setting('objective.tags')}"
    if not teacher:
        yield r"distillation\..*", f"it needs {Setting('teacher')}"
    yield r"distillation\.settings", "pretraining sets it"
    for name, kind in {"temperature": "predictions", "relation_heads|layer": "relations"}.items():
        if values.get("distillation.kind") != kind:
            yield rf"distillation\.({name})", f"it needs {Setting('distillation.kind', kind)}"
    facts = PREDICTIONS.get(predict or "")
    if facts and facts.slots_a_token:
        yield _mask_settings(replaces=False), "every token is predicted"
    if facts and facts.keeps_tokens:
        yield _mask_settings(replaces=True), f"{Setting('objective.predict', predict)} replaces no token"
    if "data.source.1" not in values or values.get("data.weights.0"):
        yield r"data\.smoothing|phases\.\d+\.smoothing", "it gives several sources their shares if no weights do"
    if values.get("vocabulary.kind") == "byte_bpe":
        yield r"vocabulary\.character_coverage", "a byte-level vocabulary has all characters"
    if not init:
        yield r"evaluation\.watch", f"it compares with the model of {Setting('init')}"
    yield from _unused_of_model(values)
    yield from _unused_of_task(values)
    if values.get("probe"):
        yield "dropout", f"{Setting('probe', True)} trains without dropout"


def _unused_of_model(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    rotary = Setting("model.positions", "rotary")
    if "model.character_filters.0" not in values:
        yield r"model\.highways", f"it needs {Setting('model.character_filters')}"
    if values.get("model.positions") != "rotary":
        yield r"model\.(local_)?rotary_base", f"it needs {rotary}"
    elif not values.get("model.local_window"):
        yield r"model\.local_rotary_base", f"it needs {Setting('model.local_window')}"


def _unused_of_task(values: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields the settings of tasks of another kind than `task.kind`; nothing for a pretraining."""
    if (kind := values.get("task.kind")) is None:
        return
    of_kinds = {"vectors": "|".join(VectorsConfig.model_fields), "span": r"span\..*", "labels": "label_separator"}
    for other, names in of_kinds.items():
        if kind != other:
            yield rf"task\.({names})", f"it is for {Setting('task.kind', other)}"
    if not values.get("task.span.null_answers"):
        yield r"task\.span\.null_threshold", f"it needs {Setting('task.span.null_answers', True)}"


def _mask_settings(replaces: bool) -> str:
    """A pattern for the names of the settings of masking that say what replaces tokens, or of the others."""
    return rf"objective\.({'|'.join(name for name, mark in MASK_SETTINGS.items() if mark.replaces == replaces)})"
