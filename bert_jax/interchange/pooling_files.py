"""Reads and writes the files that tell sentence-transformers how to pool token vectors."""

import os
import re
from pathlib import Path
from typing import Annotated, get_args

from pydantic import BeforeValidator, Field

from bert_jax.config.model import ModelConfig
from bert_jax.config.task import TaskConfig
from bert_jax.config.vectors import Pooling
from bert_jax.system.errors import UsageError, quoted
from bert_jax.system.files import write_json
from bert_jax.system.json_file import JsonObject, Shape, as_shape, read_foreign, read_foreign_shape
from bert_jax.system.progress import say
from bert_jax.text.tokenizer import Tokenizer

MODULES = "modules.json"
_TRANSFORMER_SETTINGS = tuple(
    f"sentence_{name}_config.json" for name in ("bert", "roberta", "camembert", "albert", "xlm-roberta")
)
"""Names of the file with the settings of the module Transformer. The first name is used for writing."""
_LIBRARY_SETTINGS = "config_sentence_transformers.json"
_POOLING_SETTINGS = "1_Pooling/config.json"
_CLASSES = {
    "Transformer": "sentence_transformers.models.Transformer",
    "Pooling": "sentence_transformers.models.Pooling",
    "Normalize": "sentence_transformers.models.Normalize",
}
"""The modules of a model of vectors, in order, by names that every version of the library reads."""
_MODULE = re.compile(rf"sentence_transformers\.(?:\w+\.)*({'|'.join(_CLASSES)})", re.ASCII)
_FOLDER = re.compile(r"\w[\w.-]{0,99}", re.ASCII)
_SWITCHES: dict[str, str] = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
}
"""Methods of pooling, by their switches in files of versions before 6, which version 6 reads too."""
_LAST = "pooling_mode_lasttoken"
"""The switch of pooling by the last token, in models whose [CLS] is last."""
_RANK_AS_COSINES = ("cosine", "dot", "euclidean")
"""Similarity functions that rank vectors of length 1 as cosines do."""
_SHORTEST = 8
"""Least number of pieces that texts may be cut to, equal to the least task.max_length."""
_REMEDY = f"a copy of the folder without {MODULES} is read as the encoder alone"


class _Module(Shape):
    type: str
    path: str = ""


class _Modules(Shape):
    """The modules in modules.json, in order; the first module reads texts."""

    modules: list[_Module]


_Ways = Annotated[list[str], BeforeValidator(lambda mode: [mode] if isinstance(mode, str) else mode)]


class _PoolingSettings(Shape, extra="allow"):
    """The settings of the module Pooling: a name, or a switch for each method of pooling."""

    embedding_dimension: int | None = None
    word_embedding_dimension: int | None = None
    include_prompt: bool = True
    pooling_mode: _Ways | None = None
    pooling_mode_cls_token: bool = False
    pooling_mode_mean_tokens: bool = False
    pooling_mode_max_tokens: bool = False
    pooling_mode_mean_sqrt_len_tokens: bool = False

    @property
    def ways(self) -> list[str]:
        """The methods of pooling that are on; an unknown switch is returned by its name."""
        if self.pooling_mode is not None:
            return self.pooling_mode
        known = [way for switch, way in _SWITCHES.items() if getattr(self, switch)]
        others = [name for name, on in (self.model_extra or {}).items() if name.startswith("pooling_mode_") and on]
        return known + others or ["mean"]


class _TransformerSettings(Shape):
    """The settings of the module Transformer that change vectors."""

    max_seq_length: int | None = None
    do_lower_case: bool = False
    transformer_task: str = "feature-extraction"
    module_output_name: str = "token_embeddings"
    modality_config: JsonObject = {}
    processing_kwargs: JsonObject | None = None


class _LibrarySettings(Shape):
    """The contents of config_sentence_transformers.json that change vectors."""

    prompts: dict[str, str | None] | None = None
    default_prompt_name: str | None = None
    truncate_dim: Annotated[int, Field(ge=1)] | None = None
    similarity_fn_name: str | None = None


def vectors_task(
    directory: Path, config: ModelConfig, tokenizer: Tokenizer, tokenizers_longest: float | None
) -> TaskConfig | None:
    """The task of a model that sentence-transformers wrote to `directory`: pooling, longest texts and prompts.

    None if its folder has no modules.json. `tokenizers_longest`: the model_max_length of its tokenizer. Raises
    UsageError for damaged files, and for modules or settings with which bert_jax would give other vectors. bert_jax
    keeps the whole width of vectors and compares them by cosines; it prints a line if the settings say otherwise.
    """
    if not has_modules(directory):
        return None
    folder, normalises = _pooling_folder(directory)
    pool, include_prompt = _pooling(folder / "config.json", config)
    longest = _max_length(directory, config.max_positions, tokenizer, tokenizers_longest)
    file = directory / _LIBRARY_SETTINGS
    settings = read_foreign_shape(file, _LibrarySettings) if file.is_file() else _LibrarySettings()
    prompts, default = settings.prompts or {}, settings.default_prompt_name
    if unreadable := next((name for name in prompts if "=" in name or not name.strip()), None):
        raise UsageError(f"{file}: a prompt is called {quoted(unreadable)}; give it a name without =")
    if default is not None and default not in prompts:
        raise UsageError(
            f"{file}: default_prompt_name is {quoted(default)}, which isn't among its prompts; correct that name"
        )
    if file.is_file():
        _report_comparison(settings, file, normalises, config.hidden_size)
    return TaskConfig(
        name="vectors",
        kind="vectors",
        texts=("query", "positive"),
        label="score",
        pool=pool,
        max_length=longest,
        prompts=tuple(f"{name}={text or ''}" for name, text in prompts.items()),
        default_prompt=default,
        include_prompt=include_prompt,
    )


def write_pooling(directory: Path, task: TaskConfig, config: ModelConfig) -> None:
    """Writes the files that sentence-transformers reads beside those of the encoder and the tokenizer."""
    folders = {"Transformer": "", "Pooling": Path(_POOLING_SETTINGS).parent.name, "Normalize": "2_Normalize"}
    modules = [
        {"idx": number, "name": str(number), "path": folders[name], "type": class_name}
        for number, (name, class_name) in enumerate(_CLASSES.items())
    ]
    write_json(directory / MODULES, modules)
    (directory / _POOLING_SETTINGS).parent.mkdir()
    excluded = {} if task.include_prompt else {"include_prompt": False}
    sizes = {"word_embedding_dimension": config.hidden_size}
    switches = {switch: pool == task.pooling for switch, pool in _SWITCHES.items()}
    if config.class_token == "last":
        switches[_LAST] = switches.pop("pooling_mode_cls_token")
    write_json(directory / _POOLING_SETTINGS, {**sizes, **switches, **excluded})
    longest = min(task.max_length, config.max_positions)
    write_json(directory / _TRANSFORMER_SETTINGS[0], {"max_seq_length": longest, "do_lower_case": False})
    prompts = {"prompts": task.prompt_texts, "default_prompt_name": task.default_prompt}
    write_json(directory / _LIBRARY_SETTINGS, prompts | {"similarity_fn_name": "cosine"})


def has_modules(directory: Path) -> bool:
    """Whether `directory` has a modules.json; a link to a missing file counts, since it can't be read."""
    return os.path.lexists(directory / MODULES)


def read_modules(directory: Path) -> list[_Module]:
    """The modules in their order, at least one. Raises UsageError if the file is missing or damaged, or if the first
    module has its own folder."""
    file = directory / MODULES
    try:
        modules = as_shape({"modules": read_foreign(file)}, _Modules).modules
    except ValueError as error:
        raise UsageError(f"{file}: {error}; fetch it again") from None
    if not modules:
        raise UsageError(f"{file} lists no modules; fetch the model again")
    if modules[0].path not in ("", "."):
        raise UsageError(
            f"{file}: the path of the first module is {quoted(modules[0].path)}, as in old models of "
            f"sentence-transformers; bert_jax reads a model that lies beside {MODULES}: copy the files of that folder "
            "there, and make the path empty"
        )
    return modules


def _pooling_folder(directory: Path) -> tuple[Path, bool]:
    """The folder of the module Pooling, and whether the module Normalize follows it. Raises UsageError for modules
    other than Transformer, Pooling and Normalize."""
    file, expected = directory / MODULES, list(_CLASSES)
    modules = read_modules(directory)
    known = [_MODULE.fullmatch(module.type) for module in modules]
    if None in known:
        unknown = modules[known.index(None)].type
        raise UsageError(f"{file} has a module {quoted(unknown)}, and bert_jax has {', '.join(_CLASSES)}; {_REMEDY}")
    names = [match[1] for match in known if match]
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
    if names != expected:
        say(f"{file} has no Normalize; bert_jax scales each vector to length 1, which changes no cosine")
    return directory / path, names == expected


def _pooling(file: Path, config: ModelConfig) -> tuple[Pooling, bool]:
    """The method of pooling in the settings of the module Pooling, and whether prompts are pooled too. Raises
    UsageError for a method that bert_jax doesn't have, and for vectors of another width."""
    settings, width = read_foreign_shape(file, _PoolingSettings), config.hidden_size
    for name in ("embedding_dimension", "word_embedding_dimension"):
        if getattr(settings, name) not in (None, width):
            raise UsageError(
                f"{file}: {name} is {quoted(getattr(settings, name))} and the model's width {width}; they don't belong "
                "together"
            )
    ways: dict[str, Pooling] = {way: way for way in get_args(Pooling)}
    if config.class_token == "last":
        ways = {"lasttoken": ways.pop("cls"), **ways}
    for name, way in ways.items():
        if settings.ways in ([name], [f"pooling_mode_{name}"]):
            return way, settings.include_prompt
    raise UsageError(
        f"{file} pools by {quoted(' and '.join(settings.ways))}; bert_jax has one of {', '.join(ways)}; {_REMEDY}"
    )


def _max_length(directory: Path, positions: int, tokenizer: Tokenizer, tokenizers_longest: float | None) -> int:
    """The number of pieces that texts are cut to. Raises UsageError for settings of Transformer that bert_jax can't
    follow."""
    file = next((directory / name for name in _TRANSFORMER_SETTINGS if (directory / name).is_file()), None)
    settings = read_foreign_shape(file, _TransformerSettings) if file else _TransformerSettings()
    _check_transformer(settings, tokenizer, file or directory)
    longest: float | None = settings.max_seq_length
    if longest is None:  # version 6 takes the tokenizer's limit
        file, longest = directory, tokenizers_longest
    if longest is None:
        return positions
    if longest < _SHORTEST:
        raise UsageError(
            f"{file} cuts texts to {quoted(longest)} pieces, and bert_jax to {_SHORTEST} or more; correct that number"
        )
    return int(min(longest, positions))


def _check_transformer(settings: _TransformerSettings, tokenizer: Tokenizer, file: Path) -> None:
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
    if settings.do_lower_case and "A" in tokenizer.cleaned("A"):
        raise UsageError(
            f"{file}: do_lower_case is true, and the tokenizer keeps capital letters; bert_jax lower-cases by the "
            f"tokenizer's own settings alone; {_REMEDY}"
        )


def _report_comparison(settings: _LibrarySettings, file: Path, normalises: bool, width: int) -> None:
    """Prints a line if sentence-transformers cuts vectors, or doesn't compare them by cosines."""
    cut, compared_by = settings.truncate_dim, settings.similarity_fn_name or "cosine"
    if cut is not None and cut < width:
        say(f"{file}: truncate_dim is {cut}; bert_jax gives vectors of all {width} numbers, and width={cut} cuts them")
    if compared_by not in (_RANK_AS_COSINES if normalises else ("cosine",)):
        say(
            f"{file}: similarity_fn_name is {quoted(compared_by)}; bert_jax compares by cosines, which may rank texts "
            "in another order"
        )
