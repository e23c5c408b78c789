"""XLNet's files: transformers' classes give our outputs and its tokenizer our ids; what we don't compute is refused."""

import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from damages import attack
from safetensors.numpy import load_file, save_file
from token_rows import tokens_of
from trained_tokenizers import KINDS, trained
from xlnet_vocabulary import FIRST, write_xlnets_vocabulary

from bert_jax.batching.sequences import joined
from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import ExecutionConfig
from bert_jax.finetuning.batches import task_batch
from bert_jax.finetuning.objective import TaskObjective
from bert_jax.finetuning.task import Example
from bert_jax.interchange.export import write_model_directory
from bert_jax.interchange.model_directory import open_model_directory
from bert_jax.interchange.model_settings import model_config
from bert_jax.interchange.relatives import RELATIVES
from bert_jax.interchange.tensor_names import to_tensors
from bert_jax.interchange.tokenizer_config import PublishedFolder
from bert_jax.interchange.tokenizer_files import read_tokenizer, write_tokenizer
from bert_jax.layout import TokenSequence
from bert_jax.model.bert import BertForPretraining, init
from bert_jax.system.errors import UsageError

GOLDEN = Path(__file__).parents[1] / "golden"
XLNET = GOLDEN / "relatives" / "xlnet"
SIZES = {"num_layers": 3, "hidden_size": 30, "num_heads": 5, "feedforward_size": 44, "initializer_range": 0.3}
NO_DROPOUT = {"dropout": 0.0, "attention_dropout": 0.0}
TEXTS = [*json.loads((GOLDEN / "tokenizers" / "texts.json").read_text()), "``Ärger'' at  the <eod> end<eop>", "</s> x"]
LENGTHS, T, V = [11, 7, 9, 4], 11, 71


def left(array: np.ndarray) -> np.ndarray:
    """The rows with their padding on the left, as XLNet has it."""
    return np.stack([np.roll(row, T - length, axis=0) for row, length in zip(array, LENGTHS, strict=True)])


def rows(rng):
    """Rows of two texts with [CLS] last, and their segments as we lay them out and as transformers takes them."""
    lengths, places = np.array(LENGTHS)[:, None], np.arange(T)
    mask = places < lengths
    ids = np.where(mask, rng.integers(5, V, (len(LENGTHS), T)), 0)
    segments = mask & (places >= lengths // 2)
    return ids, segments.astype(int), np.where(places == lengths - 1, 2, segments), mask


def parameters(config: ModelConfig, seed: int = 0):
    """Random ones: biases too, and the norms' scales round 1."""
    rng = np.random.default_rng(seed)
    return jax.tree.map(
        lambda leaf: (np.asarray(leaf) + rng.normal(0, 0.2, leaf.shape)).astype(np.float32),
        init(config, jax.random.key(seed)),
    )


def torch_arrays(torch, **arrays):
    return {name: torch.tensor(np.asarray(array)) for name, array in arrays.items()}


@pytest.mark.parametrize("settings", [{"clamped_distance": 4}, {"activation": "gelu_erf"}], ids=str)
def test_padding_on_the_left_gives_the_same_logits(settings, tmp_path):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    tokenizer = trained("unigram", V).with_class_token("last")
    ours = RELATIVES["xlnet"].settings
    config = ModelConfig(**SIZES, **NO_DROPOUT, **ours, **settings, model_type="xlnet", vocabulary_size=V)
    params, rng = parameters(config), np.random.default_rng(1)
    assert write_model_directory(tmp_path / "model", config, params, tokenizer) == "XLNetLMHeadModel"
    again = open_model_directory(tmp_path / "model")
    assert again.config.replace(compute_dtype="auto") == config and not again.unused and not again.absent
    before, after = (to_tensors(each, config) for each in (params, again.parameters()))
    assert before.keys() == after.keys() and all(np.array_equal(before[name], after[name]) for name in before)
    ids, segments, types, mask = rows(rng)
    ranks = np.where(mask & (rng.random(mask.shape) < 0.5), rng.permuted(np.tile(np.arange(T), (4, 1)), axis=1), -1)
    hidden = (ranks[:, None] >= 0) & (ranks[:, None] >= ranks[:, :, None])
    hidden = left(np.stack([np.roll(one, T - n, axis=1) for one, n in zip(hidden, LENGTHS, strict=True)]))
    model, info = transformers.XLNetLMHeadModel.from_pretrained(tmp_path / "model", output_loading_info=True)
    assert not any(info.values())
    given = torch_arrays(torch, input_ids=left(ids), token_type_ids=left(types), attention_mask=left(mask) * 1.0)
    given |= torch_arrays(torch, perm_mask=hidden * 1.0, target_mapping=np.tile(np.eye(T), (4, 1, 1)))
    with torch.no_grad():
        model.eval()
        out = model(**{key: value.float() if value.is_floating_point() else value for key, value in given.items()})
        plain = model(**{key: given[key] for key in ("input_ids", "token_type_ids", "attention_mask")})
    network, tokens = BertForPretraining(config), tokens_of(ids, segments, mask)
    places = np.tile(np.arange(T), (4, 1))
    logits, _ = jax.jit(network.apply)({"params": params}, tokens, places, ranks=ranks)
    content, _ = jax.jit(network.apply)({"params": params}, tokens, places)
    for found, theirs in ((logits, out.logits), (content, plain.logits)):
        np.testing.assert_allclose(np.asarray(found)[..., :V][mask], theirs.numpy()[left(mask)], atol=2e-5)


@pytest.mark.parametrize("kind", ["class", "number", "choice", "tags", "span"])
def test_a_fine_tuned_model_gives_our_outputs(fine_tuned, kind, tmp_path):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    ours = fine_tuned(kind, model_type="xlnet", **RELATIVES["xlnet"].settings, **NO_DROPOUT)
    name = write_model_directory(tmp_path / "model", *ours[1:], ours.task)
    model, info = getattr(transformers, name).from_pretrained(tmp_path / "model", output_loading_info=True)
    assert not any(info.values())
    ids, segments, types, mask = rows(np.random.default_rng(2))
    ids %= ours.config.vocabulary_size
    sequences = [
        TokenSequence(row[:size], size // 2 if kind != "tags" else size) for row, size in zip(ids, LENGTHS, strict=True)
    ]
    types = np.where(types == 1, 0, types) if kind == "tags" else types
    shape, several = (2, 2) if kind == "choice" else (4, 1), kind == "choice"
    examples = [Example(tuple(sequences[at : at + shape[1]])) for at in range(0, 4, shape[1])]
    batch = task_batch(examples, (len(examples), T * shape[1]), pad_id=0)
    given = torch_arrays(torch, input_ids=left(ids), token_type_ids=left(types), attention_mask=left(mask) * 1)
    with torch.no_grad():
        out = model.eval()(**{key: each.view(*shape, T) if several else each for key, each in given.items()})
    found = jax.jit(TaskObjective(ours.task, ours.config, ExecutionConfig()).outputs)(ours.params, batch)
    if kind in ("tags", "span"):
        theirs = out.logits if kind == "tags" else torch.stack([out.start_logits, out.end_logits], dim=2)
        np.testing.assert_allclose(found[mask], theirs.numpy()[left(mask)], atol=1e-5)
    else:
        np.testing.assert_allclose(found[:, 0], out.logits.numpy(), atol=1e-5)
    again = open_model_directory(tmp_path / "model")  # the head of a task isn't read
    assert again.absent == {"masked_lm"} and {*again.unused.values()} == {"a fine-tuned model's head"}


def test_a_pipeline_of_transformers_pads_its_texts_on_the_left(fine_tuned, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    _, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    ours = fine_tuned("class", model_type="xlnet", **RELATIVES["xlnet"].settings)
    write_model_directory(tmp_path / "model", *ours[1:], ours.task)
    classify = transformers.pipeline("text-classification", str(tmp_path / "model"), device="cpu")
    texts = ["a", "b c d e f g h", "j i"]
    scores = [one["score"] for one in classify(texts, batch_size=3)]
    sequences = [joined([ours.tokenizer.encode(text)], ours.tokenizer.vocabulary, T) for text in texts]
    batch = task_batch([Example((one,)) for one in sequences], (3, T), pad_id=0)
    logits = jax.jit(TaskObjective(ours.task, ours.config, ExecutionConfig()).outputs)(ours.params, batch)
    np.testing.assert_allclose(scores, jax.nn.softmax(logits[:, 0]).max(axis=-1), atol=1e-5)


@pytest.mark.parametrize(
    "settings", [{}, {"do_lower_case": True, "keep_accents": True, "padding_side": "left"}], ids=str
)
def test_its_tokenizer_gives_the_same_ids(settings, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    transformers = pytest.importorskip("transformers")
    size = write_xlnets_vocabulary(tmp_path)
    (tmp_path / "config.json").write_text('{"model_type": "xlnet"}')
    if settings:
        (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "XLNetTokenizer", **settings}))
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    assert type(theirs).__name__ == "XLNetTokenizer" and len(theirs) == size
    model = ModelConfig(model_type="xlnet", vocabulary_size=size, **RELATIVES["xlnet"].settings)
    ours = read_tokenizer(PublishedFolder(tmp_path), model).tokenizer
    ids = ours.encode_batch(TEXTS)
    for text, found in zip(TEXTS, ids, strict=True):
        assert found == theirs(text, add_special_tokens=False).input_ids, text
        assert ours.encode(f" {text}") == theirs(f" {text}", add_special_tokens=False).input_ids, text
    same = theirs(TEXTS[:99], TEXTS[99:198], return_token_type_ids=True)
    for number in range(99):
        one = joined([ids[number], ids[99 + number]], ours.vocabulary, 10_000)
        assert one.ids == same.input_ids[number]
        second = len(one.ids) - one.first_length - 1
        assert same.token_type_ids[number] == [0] * one.first_length + [1] * second + [2]
    masked = "Paris is the <mask> of Fr<mask>nce."
    assert ours.encode_special(masked) == theirs(masked, add_special_tokens=False).input_ids
    (tmp_path / "export").mkdir()
    write_tokenizer(ours, tmp_path / "export", 512, 0)
    exported = transformers.AutoTokenizer.from_pretrained(tmp_path / "export")
    assert exported.padding_side == "left"
    again = exported(TEXTS[:99], TEXTS[99:198])
    assert (again.input_ids, again.token_type_ids) == (same.input_ids, same.token_type_ids)
    assert (
        read_tokenizer(PublishedFolder(tmp_path / "export"), model).tokenizer.vocabulary.frame == ours.vocabulary.frame
    )
    special = {*ours.vocabulary.special_ids} - {ours.vocabulary.unknown_id}
    assert not special & {*ours.encode(" ".join(FIRST[1:7]))}


@pytest.mark.parametrize("kind", KINDS)
def test_a_trained_vocabulary_is_exported_with_its_frame(kind, tmp_path, monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    transformers = pytest.importorskip("transformers")
    ours = trained(kind).with_class_token("last")
    write_tokenizer(ours, tmp_path, 512, 0)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    model = ModelConfig(vocabulary_size=len(ours.vocabulary), **RELATIVES["xlnet"].settings)
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
    other = json.loads(trained(kind).as_pipeline().as_huggingface().to_str())["post_processor"]
    file.write_text(json.dumps(json.loads(file.read_text()) | {"post_processor": other}))
    assert read_tokenizer(PublishedFolder(tmp_path), model).tokenizer.vocabulary.class_token == "first"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"d_head": 7}, "d_head is 7 with d_model 30 and n_head 5; bert_jax's heads are d_model / n_head wide"),
        ({"d_head": "6"}, "d_head is '6': input should be a valid integer"),
        ({"n_head": 4}, "d_head is 6 with d_model 30 and n_head 4; "),
        (
            {"n_head": 4, "d_head": None},
            "--model.hidden-size=30 is not a multiple of --model.num-heads=4; .*d_model there",
        ),
        ({"attn_type": "uni"}, "attn_type is 'uni'; bert_jax's XLNet has 'bi'"),
        ({"bi_data": True}, "bi_data is True; bert_jax's XLNet has False"),
        ({"summary_type": "mean"}, "summary_type is 'mean'; bert_jax's XLNet has 'last'"),
        ({"hidden_size": 32}, "hidden_size and d_model are one setting with two values"),
        ({"clamp_len": 0.5}, "clamp_len is 0.5: input should be a valid integer"),
        ({"ff_activation": "relu"}, "ff_activation is 'relu'; bert_jax has gelu"),
        ({"d_inner": 0}, "d_inner is 0; a size from 1"),
        (
            {"d_model": 35, "d_head": 7},
            "--model.hidden-size=35 is odd and --model.positions=relative pairs .*d_model",
        ),
    ],
    ids=str,
)
def test_what_bert_jax_does_not_compute_is_one_line(changes, words):
    values = json.loads((XLNET / "config.json").read_text())
    with pytest.raises(UsageError, match=f"config.json: {words}"):
        model_config(values | changes, Path("config.json"))


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


def without(name):
    return lambda tensors: tensors.pop(name)


def changed(name, change):
    return lambda tensors: tensors.update({name: change(tensors[name])})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (without("transformer.mask_emb"), r"lacks the tensor transformer.mask_emb, of shape \(1, 1, 30\)"),
        (without("transformer.layer.1.rel_attn.r"), r"lacks the tensor transformer.layer.1.rel_attn.r, of shape"),
        (
            changed("transformer.layer.2.rel_attn.q", lambda one: one.transpose(1, 2, 0)),
            r"layer.2.rel_attn.q has shape \(5, 6, 30\) and its config asks for \(30, 5, 6\)",
        ),
        (
            changed("transformer.layer.0.rel_attn.r_w_bias", np.ravel),
            r"r_w_bias has shape \(30,\) and its config asks for \(5, 6\)",
        ),
        (lambda tensors: tensors.update({"lm_loss.weight": tensors["lm_loss.bias"]}), "lm_loss.weight differs from"),
        (
            lambda tensors: tensors.update(
                {"transformer.layer.3.rel_attn.q": tensors["transformer.layer.0.rel_attn.q"]}
            ),
            "transformer.layer.3.rel_attn.q is of layer 3, numbered from 0, and its config has 3",
        ),
    ],
)
def test_tensors_that_do_not_fit_are_one_line(change, words, tmp_path):
    shutil.copytree(XLNET, tmp_path / "model")
    tensors = load_file(XLNET / "model.safetensors")
    change(tensors)
    save_file({name: np.ascontiguousarray(one) for name, one in tensors.items()}, tmp_path / "model/model.safetensors")
    with pytest.raises(UsageError, match=words) as refused:
        open_model_directory(tmp_path / "model")
    assert "\n" not in str(refused.value)


def test_a_tokenizer_without_its_frame_is_refused_in_one_line(tmp_path):
    shutil.copytree(XLNET, tmp_path / "model")
    settings = tmp_path / "model" / "tokenizer_config.json"
    names = {
        "cls_token": "<cls>",
        "sep_token": "<sep>",
        "mask_token": "<mask>",
        "bos_token": "<s>",
        "eos_token": "</s>",
    }
    settings.write_text(json.dumps({"tokenizer_class": "AlbertTokenizer"} | names))
    with pytest.raises(
        UsageError, match="the tokenizer sets <cls> text <sep>, and the model has its class token after"
    ):
        open_model_directory(tmp_path / "model")
    settings.unlink()
    model = ModelConfig(model_type="xlnet", **RELATIVES["xlnet"].settings)
    for missing in ("<cls>", "<sep>"):
        size = write_xlnets_vocabulary(tmp_path, [piece for piece in FIRST if piece != missing])
        with pytest.raises(UsageError, match=f"the vocabulary has {size + 1:,} pieces and the model's table {size:,}"):
            read_tokenizer(PublishedFolder(tmp_path), model.replace(vocabulary_size=size))


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"class_token": "first"}, "--model.class-token=first can't be exported: .* --model.model-type=xlnet has last"),
        ({"attention_dropout": 0.2}, "--model.attention-dropout=0.2 can't be exported: .* has 0.1"),
        ({"shared_layers": True}, "--model.shared-layers can't be exported"),
        ({"model_type": "bert"}, r"--model.num-segments=0\S* can't be exported|--model.positions=relative can't"),
    ],
    ids=str,
)
@pytest.mark.long(first=1)
def test_a_model_that_the_class_does_not_have_is_not_exported(settings, words, tmp_path):
    ours = RELATIVES["xlnet"].settings | {"model_type": "xlnet", "vocabulary_size": V} | settings
    config = ModelConfig(**SIZES, **ours)
    with pytest.raises(UsageError, match=words) as refused:
        write_model_directory(tmp_path / "model", config, init(config, jax.random.key(0)), trained("unigram", V))
    assert "\n" not in str(refused.value) and not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["config.json", "spiece.model", "model.safetensors"])
def test_a_damaged_file_is_refused_in_a_line_or_the_folder_works(name, slow, tmp_path):
    shutil.copytree(XLNET, tmp_path / "model")
    attack(lambda: open_model_directory(tmp_path / "model"), tmp_path / "model" / name, count=5_000 if slow else 60)
