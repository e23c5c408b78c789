"""Tells what a folder holds: a model of another program, or something that isn't read. Nothing here imports JAX, so
that a wrong folder is refused at once."""

from bert_jax.interchange.pooling_files import MODULES
from bert_jax.interchange.tokenizer_config import PublishedFolder
from bert_jax.system.bucket import Place
from bert_jax.system.copies import fetched

HUGGING_FACE_CONFIG, GOOGLE_CONFIG = "config.json", "bert_config.json"
MERGE = "merge it into its model (peft's merge_and_unload), save that by save_pretrained, and give its folder"
"""What to do with a model that is an adapter, or has one, in words."""
_SAFETENSORS = "give the folder with the safetensors that it was made from"
_OTHERS = {
    "adapter_*": f"an adapter and no whole model; {MERGE}",
    "*.gguf": f"a model in GGUF, the format of llama.cpp, which isn't read here; {_SAFETENSORS}",
    "*.onnx": f"a model in ONNX, which isn't read here; {_SAFETENSORS}",
    "onnx/*.onnx": f"a model in ONNX, which isn't read here; {_SAFETENSORS}",
    "*.hdf5": "a file in HDF5, as ELMo's weights, which aren't read here; give a model as safetensors",
    "*.h5": "of a kind that isn't read here (Keras or TensorFlow); give the model as safetensors",
    "*.msgpack": "of a kind that isn't read here (Flax); give the model as safetensors",
}
"""Files of models that aren't read: what they are, with the remedy."""


def published_folder(path: Place) -> PublishedFolder | None:
    """The folder at `path` if it has a model of another program, else None. Only a run's config.json has a
    schema_version."""
    if (path / "checkpoints").is_dir() or (path / "manifest.json").is_file():
        return None  # a run or a checkpoint, even if its config.json is damaged
    names = (GOOGLE_CONFIG, MODULES, HUGGING_FACE_CONFIG)
    file = next((path / name for name in names if (path / name).is_file()), None)
    if file is None:
        return None
    folder = PublishedFolder(fetched(file).parent)
    is_run = file.name == HUGGING_FACE_CONFIG and "schema_version" in (folder.values(file.name) or {})
    return None if is_run else folder


def other_model(directory: Place) -> str | None:
    """What a folder holds in place of a model that can be read, with the remedy; None if that isn't known."""
    for pattern, what in _OTHERS.items():
        for path in sorted(directory.glob(pattern)):
            return f"{path} is {what}"
    return None
