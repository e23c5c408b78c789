"""Reads and writes the files that tell sentence-transformers how to pool token vectors."""

import re
from pathlib import Path
from typing import Annotated, Any, get_args

from pydantic import Field

from bert_jax.config.model import ModelConfig
from bert_jax.config.task import TaskConfig
from bert_jax.config.vectors import Pooling
from bert_jax.interchange.json_file import read_object, read_shape
from bert_jax.interchange.model_directory import PublishedModel
from bert_jax.interchange.module_list import MODULES, has_module_list, read_module_list
from bert_jax.interchange.vocabulary_files import SETTINGS
from bert_jax.system.errors import UsageError, quoted
from bert_jax.system.files import write_json
from bert_jax.system.json_file import Shape
from bert_jax.system.progress import say
from bert_jax.text.wordpiece import WordPieceTokenizer

TRANSFORMER_SETTINGS = tuple(
    f"sentence_{name}_config.json" for name in ("bert", "roberta", "camembert", "albert", "xlm-roberta")
)
"""Names of the file with the settings of the module Transformer; the first is the one that is written."""
LIBRARY_SETTINGS = "config_sentence_transformers.json"
POOLING_SETTINGS = "1_Pooling/config.json"
_CLASSES = {
    "Transformer": "sentence_transformers.models.Transformer",
    "Pooling": "sentence_transformers.models.Pooling",
    "Normalize": "sentence_transformers.models.Normalize",
}
"""The modules that a model of vectors consists of, in this order, by names that every version of the library reads."""
_MODULE = re.compile(rf"sentence_transformers\.(?:\w+\.)*({'|'.join(_CLASSES)})", re.ASCII)
_FOLDER = re.compile(r"\w[\w.-]{0,99}", re.ASCII)
_SWITCHES: dict[str, str] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
}
"""Ways of pooling by their switches in files of versions before 6, which version 6 reads too."""
_RANK_AS_COSINES = ("cosine", "dot", "euclidean")
"""Comparisons of vectors of length 1 that rank them as their cosines do."""
_SHORTEST = 8
"""Least number of pieces that texts may be cut to, which is that of task.max_length."""
_REMEDY = f"a copy of the folder without {MODULES} is read as the encoder alone"


class _TransformerSettings(Shape):
    """The settings of the module Transformer that change vectors."""

    max_seq_length: int | None = None
    do_lower_case: bool = False
    transformer_task: str = "feature-extraction"
    module_output_name: str = "token_embeddings"
    modality_config: dict[str, Any] = {}
    processing_kwargs: dict[str, Any] | None = None


class _TokenizerSettings(Shape):
    """The limit in tokenizer_config.json, which version 6 reads where the settings of Transformer have none."""

    model_max_length: float | None = None


class _LibrarySettings(Shape):
    """The contents of config_sentence_transformers.json that change vectors."""

    prompts: dict[str, str | None] | None = None
    default_prompt_name: str | None = None
    truncate_dim: Annotated[int, Field(ge=1)] | None = None
    similarity_fn_name: str | None = None


def vectors_task(model: PublishedModel) -> TaskConfig | None:
    """The task of a model that sentence-transformers wrote: its pooling, and the length that texts are cut to.

    None where its folder has no modules.json. Raises UsageError for damaged files, and for modules or settings with
    which bert_jax would give other vectors. Vectors are whole, and they are compared by cosines; a line says so
    where sentence-transformers does otherwise.
    """
    if not has_module_list(model.directory):
        return None
    folder, normalises = _pooling_folder(model.directory)
    pool, include_prompt = _pooling(folder / "config.json", model.config)
    longest = _max_length(model)
    library = model.directory / LIBRARY_SETTINGS
    settings = read_shape(library, _LibrarySettings) if library.is_file() else _LibrarySettings()
    prompts = tuple(f"{name}={text or ''}" for name, text in (settings.prompts or {}).items())
    if unreadable := next((name for name in settings.prompts or {} if "=" in name or not name.strip()), None):
        raise UsageError(f"{library}: a prompt is called {quoted(unreadable)}; give it a name without =")
    if settings.default_prompt_name not in (None, *(settings.prompts or {})):
        raise UsageError(
            f"{library}: default_prompt_name is {quoted(settings.default_prompt_name)}, which isn't among its prompts; "
            "correct that name"
        )
    if library.is_file():
        _report_comparison(settings, library, normalises, model.config.hidden_size)
    return TaskConfig(
        name="vectors",
        kind="vectors",
        texts=("query", "positive"),
        label="score",
        pool=pool,
        max_length=longest,
        prompts=prompts,
        default_prompt=settings.default_prompt_name,
        include_prompt=include_prompt,
    )


def write_pooling(directory: Path, task: TaskConfig, config: ModelConfig) -> None:
    """Writes the files that sentence-transformers reads beside those of the encoder and the tokenizer."""
    folders = {"Transformer": "", "Pooling": Path(POOLING_SETTINGS).parent.name, "Normalize": "2_Normalize"}
    modules = [
        {"idx": number, "name": str(number), "path": folders[name], "type": class_name}
        for number, (name, class_name) in enumerate(_CLASSES.items())
    ]
    write_json(directory / MODULES, modules)
    (directory / POOLING_SETTINGS).parent.mkdir()
    excluded = {} if task.include_prompt else {"include_prompt": False}
    sizes = {"word_embedding_dimension": config.hidden_size}
    switches = {switch: pool == task.pooling for switch, pool in _SWITCHES.items()}
    write_json(directory / POOLING_SETTINGS, {**sizes, **switches, **excluded})
    longest = min(task.max_length, config.max_positions)
    write_json(directory / TRANSFORMER_SETTINGS[0], {"max_seq_length": longest, "do_lower_case": False})
    write_json(
        directory / LIBRARY_SETTINGS,
        {
            "prompts": task.prompt_texts,
            "default_prompt_name": task.default_prompt,
            "similarity_fn_name": "cosine",
        },
    )


def _pooling_folder(directory: Path) -> tuple[Path, bool]:
    """The folder of the module Pooling, and whether the module Normalize follows it.

    Raises UsageError for modules other than Transformer, Pooling and Normalize.
    """
    file = directory / MODULES
    modules, names = read_module_list(directory), []
    for module in modules:
        known = _MODULE.fullmatch(module.type)
        if not known:
            raise UsageError(
                f"{file} has a module {quoted(module.type)}, and bert_jax has {', '.join(_CLASSES)}; {_REMEDY}"
            )
        names.append(known[1])
    expected = list(_CLASSES)
    if names not in (expected, expected[:-1]):
        raise UsageError(
            f"{file} lists {quoted(', '.join(names))}; {', '.join(expected)} in this order were expected; {_REMEDY}"
        )
    path = modules[1].path
    if not _FOLDER.fullmatch(path) or (directory / path).is_symlink():
        raise UsageError(
            f"{file}: the path of Pooling is {quoted(path)}; expected a plain folder beside {MODULES}, not a link; "
            "fetch the model again"
        )
    if len(names) < len(expected):
        say(f"{file} has no Normalize; bert_jax scales each vector to length 1, which changes no cosine")
    return directory / path, len(names) == len(expected)


def _pooling(file: Path, config: ModelConfig) -> tuple[Pooling, bool]:
    """The way of pooling in a config.json of the module Pooling, and whether prompts are pooled too.

    Raises UsageError for one that bert_jax doesn't have.
    """
    values = read_object(file)
    for name in ("embedding_dimension", "word_embedding_dimension"):
        width = values.get(name, config.hidden_size)
        if type(width) is not int:
            raise UsageError(f"{file}: {name} is {quoted(width)}; a whole number was expected; fetch the model again")
        if width != config.hidden_size:
            raise UsageError(
                f"{file}: {name} is {quoted(width)} and the model's width {config.hidden_size}; they don't "
                "belong together"
            )
    include_prompt = values.get("include_prompt", True)
    if not isinstance(include_prompt, bool):
        raise UsageError(f"{file}: include_prompt is {quoted(include_prompt)}; true or false was expected")
    modes = _modes(values, file)
    pools: tuple[Pooling, ...] = get_args(Pooling)
    if len(modes) == 1:
        for pool in pools:
            if modes[0] == pool:
                return pool, include_prompt
    raise UsageError(
        f"{file} pools by {quoted(' and '.join(modes))}; bert_jax has one of {', '.join(pools)}; {_REMEDY}"
    )


def _modes(values: dict[str, Any], file: Path) -> list[str]:
    """The ways of pooling that are on: of `pooling_mode`, or else the switches of earlier versions."""
    named = values.get("pooling_mode")
    if named is not None:
        modes = [named] if isinstance(named, str) else named
        if not isinstance(modes, list) or not modes or not all(isinstance(mode, str) for mode in modes):
            raise UsageError(f"{file}: pooling_mode is {quoted(named)}; a name or a list of names was expected")
        return modes
    switches = {name: value for name, value in values.items() if name.startswith("pooling_mode_")}
    for name, value in switches.items():
        if not isinstance(value, bool):
            raise UsageError(f"{file}: {quoted(name)} is {quoted(value)}; true or false was expected")
    return [_SWITCHES.get(name, name) for name, is_on in switches.items() if is_on] or ["mean"]


def _max_length(model: PublishedModel) -> int:
    """The number of pieces that texts are cut to. Raises UsageError for settings of Transformer that aren't read."""
    directory, positions = model.directory, model.config.max_positions
    file = next((directory / name for name in TRANSFORMER_SETTINGS if (directory / name).is_file()), None)
    settings = read_shape(file, _TransformerSettings) if file else _TransformerSettings()
    _check_transformer(settings, model, file or directory)
    longest: float | None = settings.max_seq_length
    if longest is None:
        file = directory / SETTINGS
        longest = read_shape(file, _TokenizerSettings).model_max_length if file.is_file() else None
    if longest is None:
        return positions
    if longest < _SHORTEST:
        raise UsageError(
            f"{file} cuts texts to {quoted(longest)} pieces, and bert_jax to {_SHORTEST} or more; correct that number"
        )
    return int(min(longest, positions))


def _check_transformer(settings: _TransformerSettings, model: PublishedModel, file: Path) -> None:
    """Raises UsageError for settings of the module Transformer that would change the vectors."""
    for name in ("transformer_task", "module_output_name"):
        value, expected = getattr(settings, name), _TransformerSettings.model_fields[name].default
        if value != expected:
            raise UsageError(f"{file}: {name} is {quoted(value)}; bert_jax has {expected!r}; {_REMEDY}")
    of_text = settings.modality_config.get("text", {})
    output = of_text.get("method_output_name", "last_hidden_state") if isinstance(of_text, dict) else of_text
    if output != "last_hidden_state":
        raise UsageError(
            f"{file}: modality_config takes {quoted(output)} of a text; bert_jax pools last_hidden_state; {_REMEDY}"
        )
    if settings.processing_kwargs:
        raise UsageError(
            f"{file}: processing_kwargs is {quoted(settings.processing_kwargs)}, which isn't read here; {_REMEDY}"
        )
    tokenizer = model.tokenizer
    lowercases = isinstance(tokenizer, WordPieceTokenizer) and tokenizer.cleaning.lowercase
    if settings.do_lower_case and not lowercases:
        raise UsageError(
            f"{file}: do_lower_case is true, and the tokenizer keeps capital letters; bert_jax lower-cases by the "
            f"tokenizer's own settings alone; {_REMEDY}"
        )


def _report_comparison(settings: _LibrarySettings, file: Path, normalises: bool, width: int) -> None:
    """Says where sentence-transformers cuts vectors, or compares them otherwise than by cosines."""
    cut, compared_by = settings.truncate_dim, settings.similarity_fn_name or "cosine"
    if cut is not None and cut < width:
        say(f"{file}: truncate_dim is {cut}; bert_jax gives vectors of all {width} numbers, and width={cut} cuts them")
    if compared_by not in (_RANK_AS_COSINES if normalises else ("cosine",)):
        say(
            f"{file}: similarity_fn_name is {quoted(compared_by)}; bert_jax compares by cosines, which may rank texts "
            "in another order"
        )
