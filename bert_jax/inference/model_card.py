"""Writes the model card (README.md) of an exported model: its kind, training, results, and how to load it."""

import json
from collections.abc import Iterator, Sequence

from bert_jax.config.finetune import AnyRunConfig
from bert_jax.config.prediction import PAIR_QUESTIONS, PREDICTIONS, QUESTIONS, REPLACED_SHARE
from bert_jax.config.task import TaskConfig
from bert_jax.config.task_kind import TASK_KINDS
from bert_jax.config.vectors import HELD_OUT_PAIRS
from bert_jax.config.wording import article, counted
from bert_jax.inference.bert import Bert
from bert_jax.interchange.relatives import RELATIVES, exported_type
from bert_jax.run.results import Results, read_results
from bert_jax.run.trained_model import Provenance
from bert_jax.system.bucket import Place
from bert_jax.system.errors import UsageError
from bert_jax.system.reading import READINGS_FILE, read_readings
from bert_jax.text.wordpiece import WordPieceTokenizer

_USES = {"BertForPreTraining": "fill-mask", "BertForMaskedLM": "fill-mask", "BertForCausalLM": "text-generation"} | {
    kind.exported_as: kind.hub_use for kind in TASK_KINDS.values() if kind.exported_as and kind.head != "texts"
}
"""The hub's pipeline tag of each class of transformers, named as for BERT; all others have feature-extraction."""
_NAMES = {
    **{question.loss: f"{question.title} loss (nats)" for question in QUESTIONS},
    **{question.accuracy: f"{question.title} accuracy" for question in QUESTIONS},
    REPLACED_SHARE: "share of tokens that are replaced",
    "bits_per_character": "bits per character",
    "mean_cosine": "mean cosine of different texts",
}
_BEFORE = "before the training"
"""The column of the initial model's measurements."""
_OF_VECTORS = "sentence-transformers"
"""The library that vectors of texts are exported for."""
_POOLED = {
    "mean": "the mean of its tokens' vectors",
    "cls": "the vector of its first token",
    "max": "the maximum of each component over its tokens",
}
"""What a text's vector is, by `task.pool`."""


def model_card(path: Place, model: Bert, architecture: str, name: str) -> str:
    """The text of the model card of `model`, exported from `path` as `name`, for transformers' class `architecture`. It
    says what settings and results say, and leaves the license to whoever publishes the model."""
    provenance = model.provenance
    config = None if provenance.imported_from else provenance.settings
    results, remarks = _results(path, provenance.steps), _remarks(path)
    sections = [
        "\n".join(_front_matter(config, model, architecture, remarks)),
        f"# {name}",
        " ".join(_description(model, architecture)),
        "## Training\n\n" + "\n".join(f"- {line}" for line in _training_lines(config, provenance, results, remarks)),
    ]
    if table := list(_results_table(config, results)):
        sections.append("## Results\n\n" + "\n".join(table))
    sections += [
        "## Use\n\n" + "\n\n".join(f"```python\n{code}\n```" for code in _uses(model, architecture, name)),
        "Exported by bert_jax. This card does not cover intended uses, limits and biases: add what you know of them.",
    ]
    return "\n\n".join(sections) + "\n"


def _results(path: Place, steps: tuple[int, ...]) -> Results:
    """The results of the run at `path`; empty if they aren't those of the parameters saved at `steps`."""
    try:
        results, _ = read_results(path / "results.json")
    except (OSError, ValueError):  # the run isn't finished, or the path is another model's
        return Results()
    measured = results.steps if results.best_step is None else results.best_step
    return results if steps == (measured,) else Results()


def _remarks(path: Place) -> list[str]:
    """The warnings about the input of the run at `path`; [] if it kept none or is another program's model."""
    try:
        return [remark for reading in read_readings(path / READINGS_FILE) for remark in reading.remarks]
    except (OSError, ValueError, UsageError):
        return []


def _front_matter(
    config: AnyRunConfig | None, model: Bert, architecture: str, remarks: Sequence[str] = ()
) -> Iterator[str]:
    """Yields the lines of the hub's metadata, in YAML."""
    yield "---\n# license: add the one under which you publish the model, such as apache-2.0"
    if any("data.language" in remark for remark in remarks):
        yield "# language: add it; the text was identified as another one than data.language says"
    elif config and config.data:
        yield "language:"
        yield from (f"- {json.dumps(language)}" for language in dict.fromkeys(config.data.language))
    model_type = exported_type(model.config)
    relative = RELATIVES[model_type]
    suffix, renamed = architecture.removeprefix(relative.classes), {new: old for old, new in relative.suffixes.items()}
    as_for_bert = "" if architecture == relative.discriminator else f"Bert{renamed.get(suffix, suffix)}"
    library, use, tags = "transformers", _USES.get(as_for_bert, "feature-extraction"), [model_type, "bert_jax"]
    if task := _vectors_task(model):
        library, use, tags = _OF_VECTORS, task.task_kind.hub_use, [_OF_VECTORS, "feature-extraction", *tags]
    yield f"library_name: {library}"
    yield f"pipeline_tag: {use}"
    yield "\n- ".join(["tags:", *tags]) + "\n---"


def _uses(model: Bert, architecture: str, name: str) -> Iterator[str]:
    """Yields the code for each program that loads the model."""
    if not _vectors_task(model):
        yield (
            f"from transformers import AutoTokenizer, {architecture}\n\n"
            f"tokenizer = AutoTokenizer.from_pretrained({name!r})\n"
            f"model = {architecture}.from_pretrained({name!r})"
        )
        return
    texts = '["a text", "another text"]'
    yield (
        f"from sentence_transformers import SentenceTransformer\n\n"
        f"vectors = SentenceTransformer({name!r}).encode({texts})\n"
        "cosines = vectors @ vectors.T"
    )
    yield f"import bert_jax\n\nvectors = bert_jax.load({name!r}).embed({texts})\ncosines = vectors @ vectors.T"


def _vectors_task(model: Bert) -> TaskConfig | None:
    """The task of a model that was fine-tuned for vectors of texts; None for any other model."""
    return model.task if model.task and model.task.makes_vectors else None


def _description(model: Bert, architecture: str) -> Iterator[str]:
    config, tokenizer = model.config, model.tokenizer
    casing = ""
    if isinstance(tokenizer, WordPieceTokenizer):
        casing = ", lower-cased" if tokenizer.cleaning.lowercase else ", cased"
    title = RELATIVES[exported_type(config)].title
    yield (
        f"{article(title).capitalize()} {title} of {counted(config.num_layers, 'layers')}, width "
        f"{config.hidden_size} and {counted(config.num_heads, 'attention heads')}, for sequences of up to "
        f"{config.max_positions} tokens."
    )
    yield f"Vocabulary: {len(tokenizer.vocabulary):,} pieces ({tokenizer.kind}{casing})."
    yield f"Class in transformers: {architecture}."
    if task := _vectors_task(model):
        longest = min(task.max_length, config.max_positions)
        pooled = _POOLED[task.pooling]
        yield f"The vector of a text is {pooled}, scaled to length 1; texts are cut to {longest} tokens."
        if task.widths:
            widths = " or ".join(map(str, sorted(task.widths, reverse=True)))
            yield f"The first {widths} components of a vector can be used alone, scaled to length 1."


def _training_lines(
    config: AnyRunConfig | None, provenance: Provenance, results: Results, remarks: Sequence[str] = ()
) -> Iterator[str]:
    if config is None:
        yield f"converted from {_code(provenance.imported_from)}, whose files don't say how it was trained"
        return
    yield f"began with {_code(config.init)}" if config.init else "began with random parameters"
    if config.task is None:
        yield f"text: {', '.join(map(_code, config.data.source))}"
        predicted, pair = PREDICTIONS[config.objective.predict].described, PAIR_QUESTIONS[config.objective.pair]
        pairs = f" and {pair.asked_about}" if pair else ""
        tags = f" and the parts of speech of {_code(config.objective.tags)}" if config.objective.tags else ""
        yield f"objective: {predicted}{pairs}{tags}"
        if config.teacher:
            yield f"teacher: {config.distillation.kind} of {_code(config.teacher)}"
    else:
        rows = "" if results.training_rows is None else f", {results.training_rows:,} rows"
        source = _code(config.task.train or config.task.source)
        task, kind = config.task, f" ({config.task.kind})"
        is_named = task.name not in (task.kind, task.rows_name)
        yield f"task: {_code(task.name) + kind if is_named else _code(task.kind)}, learned from {source}{rows}"
    done = provenance.steps[-1]
    for number, phase in enumerate(config.phases):
        steps = min(phase.steps, done - config.steps_of(number).start)
        if steps > 0:
            yield f"{counted(steps, 'steps')} of {config.batch_in_words(number)}"
    if len(provenance.steps) > 1:
        averaged = ", ".join(map(str, provenance.steps))
        yield f"the parameters are the mean of those at steps {averaged} of {config.steps}"
    elif done < config.steps:
        yield f"this is the checkpoint at step {done:,} of {config.steps:,}"
    optimizer = config.optimizer
    yield f"optimizer: {optimizer.name}, highest learning rate {optimizer.peak_learning_rate:g}; seed {config.seed}"
    yield from (f"warning about the input: {_code(remark)}" for remark in remarks)


def _results_table(config: AnyRunConfig | None, results: Results) -> Iterator[str]:
    """Yields the lines of a table with every metric of results.json, after a line about the text that was measured."""
    if config is None:
        return
    recorded = results.baselines or {config.BASELINE: results.baseline or {}}
    baselines = {name: known for name, known in {**recorded, _BEFORE: results.started_from}.items() if known}
    if not results.metrics:
        return
    if config.task is None:
        yield f"Measured on {results.held_out_sequences or 0:,} sequences held out from training.\n"
    else:
        of_rows = HELD_OUT_PAIRS if not config.task.dev_in_words else f"rows of {_code(config.task.dev_in_words)}"
        rows = f"{results.dev_rows or 0:,} {of_rows}"
        others = [f"{name}/... on {_code(source)}" for name, source in config.task.other_sets.items()]
        yield f"Measured on {rows}, by which the checkpoint was chosen{'; '.join(['', *others])}.\n"
    is_replaced = config.objective is not None and config.objective.predict == "replaced"
    yield "| | model |" + "".join(f" {name} |" for name in baselines)
    yield "|---|---|" + "---|" * len(baselines)
    for name, value in results.metrics.items():
        guesses = "".join(f" {known[name]:.4f} |" if name in known else " |" for known in baselines.values())
        whose = "the generator's " if is_replaced and name.startswith("mlm_") else ""
        yield f"| {whose}{_NAMES.get(name, name)} | {value:.4f} |{guesses}"


def _code(text: str | None) -> str:
    """Formats `text` as inline code of Markdown, on one line."""
    return "`" + " ".join(str(text).replace("`", "'").split()) + "`"
