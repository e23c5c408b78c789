"""Converts a model's configuration from and to Hugging Face's config.json; reads Google's bert_config.json, too."""

from pathlib import Path

from bert_jax.config.model import Activation, ModelConfig
from bert_jax.config.settings import SettingsError
from bert_jax.config.task import TaskConfig
from bert_jax.interchange.relatives import RELATIVES, exported_type, relative_of
from bert_jax.model.positions import SCHEMES
from bert_jax.system.errors import Setting, UsageError, quoted
from bert_jax.system.json_file import JsonObject
from bert_jax.system.progress import say
from bert_jax.system.reading import Fact
from bert_jax.text.vocabulary import Vocabulary

ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu_erf",
    "gelu_python": "gelu_erf",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "silu": "silu",
}
"""Activations by Hugging Face's names. In Google's files `gelu` was the erf form until February 2019, then tanh."""

_LEFT_OUT = ("is_decoder", "add_cross_attention", "pruned_heads")
"""Settings that aren't written, because their only supported value is the default of transformers."""

_MOST = 10_000_000
"""Largest plausible size, far above any size in a BERT."""


def model_config(
    values: JsonObject, path: Path, activation: Activation | None = None, is_google: bool = False
) -> ModelConfig:
    """The configuration in `values`, read from `path`. `activation` overrides the activation in the file.

    A missing key has the default of transformers' class. `is_google`: whether the file is Google's. Google's files must
    have every size, and their `gelu` is the tanh form. Raises UsageError if the model isn't a BERT, or if a size is
    missing or implausible.
    """
    model_type = values.get("model_type", "bert")
    relative = relative_of(values, str(path))
    for alias, name in relative.aliases.items():
        if alias in values and values.get(name, values[alias]) != values[alias]:
            raise UsageError(f"{path}: {alias} and {name} are one setting with two values; keep the model's own")
    values = {relative.aliases.get(key, key): value for key, value in values.items()}
    if not is_google:
        written = {name: value for name, value in values.items() if value is not None or name in relative.sizes}
        values = relative.defaults | written
    for name, value in relative.fixed.items():
        if values.get(name, value) not in (value, None):
            raise UsageError(f"{path}: {name} is {quoted(values[name])}; bert_jax's {relative.classes} has {value!r}")
    settings: JsonObject = {ours: _size(values, theirs, path) for theirs, ours in relative.sizes.items()}
    settings |= {ours: values[theirs] for theirs, ours in relative.rates.items() if values.get(theirs) is not None}
    settings |= {"model_type": model_type, **relative.settings, **relative.conversion.read(values, str(path))}
    of_blocks, *of_heads = (_activation(values, name, path, is_google) for name in relative.activations)
    of_head = activation or next(iter(of_heads), of_blocks)
    if relative.head_activation:
        of_head = ACTIVATIONS[relative.head_activation]
    settings["activation"] = activation or of_blocks
    if of_head != settings["activation"]:
        settings["head_activation"] = of_head
    try:
        # In float32 the model's vectors and predictions equal those of the program that wrote it.
        return ModelConfig(**settings, compute_dtype="float32")
    except SettingsError as error:
        names = relative.sizes | relative.rates
        renamed = [
            f"{ours} is {theirs} there"
            for theirs, ours in names.items()
            if Setting(f"model.{ours}") in str(error) and ours != theirs
        ]
        raise UsageError(f"{path}: {error}" + (f" ({', '.join(renamed)})" if renamed else "")) from None


def architecture_of(values: JsonObject) -> str:
    """The class that a config.json names; empty if it names none."""
    named = values.get("architectures")
    first = named[0] if isinstance(named, list) and named else None
    return first if isinstance(first, str) else ""


def model_facts(
    values: JsonObject, config: ModelConfig, file: str, activation: Activation | None, is_google: bool
) -> list[Fact]:
    """How the settings `values`, read from `file`, were understood, and which keys have the default of the class.
    `activation`: the user's choice in place of the file's."""
    relative = RELATIVES[exported_type(config)]
    name = architecture_of(values)
    known_by = file if name else f"model_type {values.get('model_type', 'bert, which is the default')}"
    encoder = (
        f"{config.num_layers} layers of width {config.hidden_size:,}, {config.num_heads} heads, "
        f"{config.max_positions:,} positions, {config.num_segments} segments"
    )
    form, head = _in_words(config.activation), config.prediction_head.activation
    facts = [
        Fact(name="class", value=name or f"{relative.classes}Model", known_by=known_by),
        Fact(name="encoder", value=encoder, known_by=file),
    ]
    lacking = {} if is_google else {key: value for key, value in relative.defaults.items() if values.get(key) is None}
    default = f"default of {relative.classes}Config"
    source = default if relative.activations[0] in lacking else "Google's code" if is_google else file
    facts.append(Fact(name="activation", value=form, known_by="--activation" if activation else source))
    if head != config.activation:
        source = f"{relative.classes}'s head" if relative.head_activation else file
        facts.append(Fact(name="head's activation", value=_in_words(head), known_by=source))
    if lacking:
        text = ", ".join(f"{key} {value}" for key, value in lacking.items())
        facts.append(Fact(name="not in the file", value=text, known_by=default))
    if values.get("auto_map"):
        text = "auto_map names the author's code, which isn't run; the model is computed as its model_type says"
        facts.append(Fact(name="code", value=text, known_by=file))
    facts += [Fact(name=name, value=value, known_by="bert_jax") for name, value in relative.facts.items()]
    epsilon = Fact(name="epsilon of norms", value=f"{config.layer_norm_epsilon:g}", known_by=file)
    return facts if "layer_norm_epsilon" in {relative.rates.get(key) for key in lacking} else [*facts, epsilon]


def config_values(model: ModelConfig, vocabulary: Vocabulary, class_name: str, has_pooler: bool) -> JsonObject:
    """The values of Hugging Face's config.json for `model`, exported as transformers' class `class_name`.

    `has_pooler`: whether a pooler is exported; otherwise `model.pooler` may be of any kind.

    Raises UsageError if the files of its `model_type` can't describe the model.
    """
    model_type = exported_type(model)
    relative = RELATIVES[model_type]
    # The size in config.json includes the unused rows.
    model = model.replace(vocabulary_size=model.num_word_rows, word_rows=None, feedforward_size=model.inner_size)
    written = {form: name for name, form in ACTIVATIONS.items() if name in ("gelu", "gelu_new", "silu")}
    values: JsonObject = {"architectures": [class_name], "model_type": model_type}
    values |= {theirs: getattr(model, ours) for theirs, ours in (relative.sizes | relative.rates).items()}
    if "embedding_size" in values:
        values["embedding_size"] = model.table_size
    limit = model.max_positions if "max_positions" in relative.sizes.values() else None
    forms = (model.activation, model.prediction_head.activation)
    values |= {name: written[form] for name, form in zip(relative.activations, forms, strict=False)}
    values |= {name: value for name, value in relative.fixed.items() if name not in _LEFT_OUT}
    values |= {"pad_token_id": vocabulary.pad_id, "dtype": "float32", **relative.conversion.write(model, vocabulary)}
    remedy = "use the run itself, or begin one with another --model.model-type"
    kind = f"to transformers a model of {Setting('model.model_type', model.model_type)}"
    if missing := next((ours for ours in relative.sizes.values() if getattr(model, ours) == 0), None):
        raise UsageError(f"{Setting(f'model.{missing}', 0)} can't be exported: {kind} has 1 or more; {remedy}")
    read_again = model_config(values, Path("config.json"))
    has_head = class_name.endswith(("ForMaskedLM", "ForPreTraining", "ForCausalLM")) and not model.discriminator
    if "dropout" in relative.settings and model.dropout:
        say(f"{Setting('model.dropout', model.dropout)} isn't written: to transformers {relative.title} has none")
        model = model.replace(dropout=read_again.dropout)
    expected = model.replace(
        # Fixed positions are written as a table, and a generator as a separate model.
        positions="learned" if SCHEMES[model.positions].fixed_vectors else model.positions,
        max_positions=limit or read_again.max_positions,
        generator_divisor=None,
        generator_layers=None,
        shared_embeddings="all",
        mask_decoder=False,
        pooler=model.pooler if has_pooler else read_again.pooler,
        head_activation=model.head_activation if has_head else read_again.head_activation,
        compute_dtype="float32",
    )
    for name in ModelConfig.model_fields:
        if getattr(read_again, name) != getattr(expected, name):
            raise UsageError(
                f"{Setting(f'model.{name}', getattr(model, name))} can't be exported: {kind} has "
                f"{getattr(read_again, name)}; {remedy}"
            )
    return values


def head_values(task: TaskConfig) -> JsonObject:
    """The values of Hugging Face's config.json for the head of `task`: its labels and problem type. Empty for multiple
    choice and question answering, whose heads always have the same shape. The labels of `task` must be known."""
    names = task.labels if task.task_kind.labelled else ("LABEL_0",) if task.task_kind.loss == "squares" else None
    if not names:
        return {}
    labels = {"id2label": dict(enumerate(names)), "label2id": {name: number for number, name in enumerate(names)}}
    return labels | ({"problem_type": task.task_kind.problem} if task.task_kind.problem else {})


def _in_words(activation: Activation) -> str:
    return activation.replace("gelu_", "GELU by ").replace("silu", "SiLU")


def _size(values: JsonObject, name: str, path: Path) -> int:
    if name not in values:
        raise UsageError(f"{path}: {name} is missing; a size from 1 to {_MOST:,} was expected")
    size = values[name]
    if not isinstance(size, int) or isinstance(size, bool) or not 0 < size <= _MOST:
        raise UsageError(f"{path}: {name} is {quoted(size)}; a size from 1 to {_MOST:,} was expected")
    return size


def _activation(values: JsonObject, setting: str, path: Path, is_google: bool) -> Activation:
    name = values.get(setting, "gelu")
    if not isinstance(name, str) or name not in ACTIVATIONS:
        raise UsageError(f"{path}: {setting} is {quoted(name)}; bert_jax has {', '.join(ACTIVATIONS)}")
    return "gelu_tanh" if is_google and name == "gelu" else ACTIVATIONS[name]
