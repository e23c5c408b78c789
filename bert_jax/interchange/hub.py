"""Downloads models of the Hugging Face hub by name: bert-base-uncased, google/bert_uncased_L-2_H-128_A-2."""

import importlib.util
import os
from pathlib import Path

from bert_jax.interchange.model_folder import MERGE
from bert_jax.interchange.model_path import ANY_MODEL, INDEX, WEIGHTS, local_place
from bert_jax.interchange.tokenizer_config import ADDED_TOKENS, SPECIAL_TOKENS_MAP
from bert_jax.interchange.vocabulary_files import VOCABULARIES
from bert_jax.system.bucket import Place
from bert_jax.system.errors import UsageError, command_line, install_extra, quoted
from bert_jax.system.progress import say
from bert_jax.text.pipeline import TOKENIZER_CONFIG

_FILES = (
    *("config.json", WEIGHTS, INDEX, "model-*-of-*.safetensors"),
    *(*VOCABULARIES, "merges.txt", TOKENIZER_CONFIG, SPECIAL_TOKENS_MAP, ADDED_TOKENS),
    # files of sentence-transformers
    *("modules.json", "*_Pooling/config.json", "sentence_*_config.json", "config_sentence_transformers.json"),
    "README.md",  # which names the model's languages
)
"""Patterns of the files to download: those that this package reads. None of them can run code."""


def model_place(source: str | os.PathLike, expected: str = ANY_MODEL) -> Place:
    """The location of the model that `source` names: a path, a gs:// URL, or a model of the hub, which is downloaded.

    huggingface_hub caches downloads, and uses the cache if the hub can't be reached. Raises UsageError if that library
    is missing, if neither the hub nor the cache has the model, if the model has no safetensors files, and as
    `local_place` does.
    """
    return local_place(source, expected) or _fetched(os.fspath(source))


def _fetched(name: str) -> Path:
    """Downloads a model of the hub; returns the local directory, and reports the revision."""
    if importlib.util.find_spec("huggingface_hub") is None:
        raise UsageError(
            f"there is no folder {name} here, and a model of the Hugging Face hub needs huggingface_hub: "
            f"{install_extra('hub')}"
        )
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError, RepositoryNotFoundError

    try:
        # Passed as an argument, because the library reads the variable only at its import.
        endpoint = os.environ.get("HF_ENDPOINT")
        folder = Path(snapshot_download(name, allow_patterns=list(_FILES), endpoint=endpoint))
    except RepositoryNotFoundError:
        raise UsageError(
            f"there is no folder {name} here, and no model of this name in the Hugging Face hub that may be read "
            "without a login; write a folder as ./NAME, or log in with: hf auth login"
        ) from None
    except LocalEntryNotFoundError:
        raise UsageError(
            f"there is no folder {name} here, the Hugging Face hub can't be reached, and its cache lacks the model; "
            f"fetch it where there is a network (hf download {name}), or give its folder as ./NAME"
        ) from None
    except Exception as error:  # raised by the library, its HTTP client or the file system
        reason = quoted(str(error))
        raise UsageError(f"{name} can't be fetched from the Hugging Face hub ({reason}); try again") from None
    if not any((folder / weights).is_file() for weights in (WEIGHTS, INDEX)):
        raise UsageError(_without_weights(name, endpoint))
    say(f"{name} is taken from the Hugging Face hub, revision {folder.name}")
    return folder


def _without_weights(name: str, endpoint: str | None) -> str:
    """The error message for a model of the hub of which no safetensors file was downloaded, or was there before."""
    from huggingface_hub import HfApi

    try:
        files = HfApi(endpoint=endpoint).list_repo_files(name)
    except Exception:  # raised by the library or its HTTP client, as where there is no network
        return (
            f"the cache of the Hugging Face hub has {name} without its weights, and the hub can't be reached; fetch it "
            f"where there is a network: {command_line('hf', 'download', name)}"
        )
    if any(file.startswith("adapter_") for file in files):
        return f"{name} in the Hugging Face hub is an adapter; {MERGE}"
    script = f"transformers.AutoModelForPreTraining.from_pretrained('{name}').save_pretrained('converted')"
    return (
        f"{name} in the Hugging Face hub has no safetensors files, and pickles are never read; convert it where that "
        f'is safe: python -c "import transformers; {script}" ; and put its vocabulary there too'
    )
