"""XLNet's files: its ids, frame and padding, and what is refused. Its outputs are compared in test_relatives.py and
test_transformers.py."""

import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from damages import attack
from safetensors.numpy import load_file, save_file
from tokenizer_folders import OF_XLNET
from trained_tokenizers import KINDS, trained
from xlnet_vocabulary import write_xlnets_vocabulary

from bert_jax.batching.sequences import joined
from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import ExecutionConfig
from bert_jax.config.task_kind import TASK_KINDS
from bert_jax.finetuning.batches import task_batch
from bert_jax.finetuning.objective import TaskObjective
from bert_jax.finetuning.task import Example
from bert_jax.interchange.export import write_model_directory
from bert_jax.interchange.model_directory import open_model_directory
from bert_jax.interchange.model_settings import model_config
from bert_jax.interchange.relatives import RELATIVES
from bert_jax.interchange.tokenizer_config import PublishedFolder
from bert_jax.interchange.tokenizer_files import read_tokenizer, write_tokenizer
from bert_jax.system.errors import UsageError

GOLDEN = Path(__file__).parents[1] / "golden"
XLNET = GOLDEN / "relatives" / "xlnet"


def test_a_pipeline_of_transformers_pads_its_texts_on_the_left(fine_tuned, transformers, tmp_path):
    pytest.importorskip("torch")
    ours = fine_tuned("class", model_type="xlnet", **RELATIVES["xlnet"].settings)
    write_model_directory(tmp_path / "model", *ours[1:], ours.task)
    classify = transformers.pipeline("text-classification", str(tmp_path / "model"), device="cpu")
    texts = ["a", "b c d e f g h", "j i"]
    scores = [one["score"] for one in classify(texts, batch_size=3)]
    sequences = [joined([ours.tokenizer.encode(text)], ours.tokenizer.vocabulary, 11) for text in texts]
    batch = task_batch(TASK_KINDS["class"], [Example((one,)) for one in sequences], (3, 11), pad_id=0)
    logits = jax.jit(TaskObjective(ours.task, ours.config, ExecutionConfig()).outputs)(ours.params, batch)
    np.testing.assert_allclose(scores, jax.nn.softmax(logits[:, 0]).max(axis=-1), atol=1e-5)


def test_its_tokenizer_gives_the_same_ids(transformers, tmp_path):
    size = write_xlnets_vocabulary(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "xlnet"}')
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert type(theirs).__name__ == "XLNetTokenizer" and len(theirs) == size
    model = ModelConfig(model_type="xlnet", vocabulary_size=size, **RELATIVES["xlnet"].settings)
    ours = read_tokenizer(PublishedFolder(tmp_path), model).tokenizer
    texts = json.loads((GOLDEN / "tokenizers" / "texts.json").read_text())
    for text in (*texts, *(f" {text}" for text in texts), "``Ärger'' at  the <eod> end<eop>", "</s> x"):
        assert ours.encode(text) == theirs(text, add_special_tokens=False).input_ids, text


@pytest.mark.parametrize("kind", [*KINDS, "xlnet"])
def test_a_vocabulary_is_exported_with_its_frame(kind, transformers, tmp_path):
    model = ModelConfig(model_type="xlnet", vocabulary_size=5_000, **RELATIVES["xlnet"].settings)
    if kind == "xlnet":
        write_xlnets_vocabulary(tmp_path)
        ours = read_tokenizer(PublishedFolder(tmp_path), model).tokenizer
        (tmp_path / "spiece.model").unlink()
    else:
        ours = trained(kind).with_class_token("last")
    write_tokenizer(ours, tmp_path, 512, 0)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert theirs.padding_side == "left"
    again = read_tokenizer(PublishedFolder(tmp_path), model).tokenizer
    assert again.vocabulary.frame == ours.vocabulary.frame
    first, second = "the quick foxes jumped", "over lazy dogs"
    one = joined(ours.encode_batch([first, second]), ours.vocabulary, 99)
    both = theirs(first, second)
    assert one.ids == both.input_ids == joined(again.encode_batch([first, second]), again.vocabulary, 99).ids
    assert both.token_type_ids[-2:] == [1, 2] and both.token_type_ids.count(0) == one.first_length
    assert theirs(first).token_type_ids[-2:] == [0, 2]
    # transformers follows tokenizer.json, and so is a frame read that contradicts the model.
    file = tmp_path / "tokenizer.json"
    other = json.loads(ours.with_class_token("first").as_pipeline().as_huggingface().to_str())["post_processor"]
    file.write_text(json.dumps(json.loads(file.read_text()) | {"post_processor": other}))
    assert read_tokenizer(PublishedFolder(tmp_path), model).tokenizer.vocabulary.class_token == "first"


def test_memory_and_other_names_of_sizes_change_nothing():
    values = json.loads((XLNET / "config.json").read_text())
    config = model_config(values, Path("config.json"))
    assert config.clamped_distance == 9 and config.head_size == 6 and config.max_positions == 512
    memory = {"mem_len": 384, "reuse_len": 256, "use_mems_train": True}
    renamed = {alias: values[name] for alias, name in RELATIVES["xlnet"].aliases.items()}
    rest = {name: value for name, value in values.items() if name not in RELATIVES["xlnet"].aliases.values()}
    for others in (values | memory, values | renamed, rest | renamed):
        assert model_config(others, Path("config.json")) == config
    assert model_config(values | {"clamp_len": -1}, Path("config.json")).clamped_distance is None


@pytest.mark.parametrize(
    ("name", "axes", "words"),
    [
        ("mask_emb", None, r"lacks the tensor transformer.mask_emb, of shape \(1, 1, 30\)"),
        ("layer.2.rel_attn.q", (1, 2, 0), r"rel_attn.q has shape \(5, 6, 30\) and its config asks for \(30, 5, 6\)"),
    ],
)
def test_tensors_that_do_not_fit_are_one_line(name, axes, words, tmp_path):
    shutil.copytree(XLNET, tmp_path / "model")
    tensors = load_file(XLNET / "model.safetensors")
    tensor = tensors.pop(f"transformer.{name}")
    if axes:
        tensors[f"transformer.{name}"] = np.ascontiguousarray(tensor.transpose(axes))
    save_file(tensors, tmp_path / "model" / "model.safetensors")
    with pytest.raises(UsageError, match=words) as refused:
        open_model_directory(tmp_path / "model")
    assert "\n" not in str(refused.value)


def test_a_tokenizer_without_its_frame_is_refused_in_one_line(tmp_path):
    shutil.copytree(XLNET, tmp_path / "model")
    settings = tmp_path / "model" / "tokenizer_config.json"
    settings.write_text(json.dumps({"tokenizer_class": "AlbertTokenizer"} | OF_XLNET))
    with pytest.raises(UsageError, match="sets <cls> text <sep>, and the model has its class token after"):
        open_model_directory(tmp_path / "model")


@pytest.mark.parametrize("name", ["config.json", "spiece.model"])
def test_a_damaged_file_is_refused_in_a_line_or_the_folder_works(name, slow, tmp_path):
    shutil.copytree(XLNET, tmp_path / "model")
    attack(lambda: open_model_directory(tmp_path / "model"), tmp_path / "model" / name, count=5_000 if slow else 60)
