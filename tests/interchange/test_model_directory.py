import json
import os
import shlex
import shutil
import string
import struct
from pathlib import Path

import jax
import numpy as np
import pytest
import tokenizers
from damages import attack
from safetensors.numpy import load_file, save_file

import bert_jax
from bert_jax.cli.main import run
from bert_jax.config.data import VocabularyConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.training import Phase
from bert_jax.interchange.export import write_model_directory
from bert_jax.interchange.model_directory import open_model_directory
from bert_jax.interchange.relatives import RELATIVES
from bert_jax.interchange.tensor_names import select
from bert_jax.interchange.tensors import read_safetensors
from bert_jax.interchange.tokenizer_config import PublishedFolder
from bert_jax.interchange.tokenizer_files import read_tokenizer, write_tokenizer
from bert_jax.model.sharding import make_mesh
from bert_jax.pretraining.initial import initial_parameters, open_initial
from bert_jax.pretraining.pretrain import pretrain
from bert_jax.run.opened_models import OpenedModels
from bert_jax.run.run_directory import RunDirectory
from bert_jax.system.errors import UsageError
from bert_jax.text.tokenizer import load_tokenizer
from bert_jax.text.tokenizer_json import added_token
from bert_jax.text.wordpiece import WordPieceTokenizer

GOLDEN = Path(__file__).parents[1] / "golden" / "gelu_erf"
HEADER_BYTES = 8


@pytest.fixture
def folder(tmp_path):
    """A copy of a model that transformers wrote, to be spoiled."""
    shutil.copytree(GOLDEN, tmp_path / "model")
    (tmp_path / "model" / "expected.safetensors").unlink()
    return tmp_path / "model"


def changed(path: Path, **changes) -> None:
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def with_tensors(folder: Path, change) -> None:
    """Rewrites the weights with what `change` makes of them."""
    path = folder / "model.safetensors"
    save_file(change(load_file(path)), path, metadata={"format": "pt"})


def dropped(*names: str):
    """Leaves out the tensors whose names begin so."""
    return lambda folder: with_tensors(
        folder, lambda tensors: {key: value for key, value in tensors.items() if not key.startswith(names)}
    )


def with_header(folder: Path, change) -> None:
    """Rewrites the header of the weights; the numbers stay."""
    path = folder / "model.safetensors"
    content = path.read_bytes()
    size = struct.unpack("<Q", content[:HEADER_BYTES])[0]
    header = json.loads(content[HEADER_BYTES : HEADER_BYTES + size])
    change(header)
    written = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(written)) + written + content[HEADER_BYTES + size :])


def sharded(folder: Path, files: int = 3) -> dict[str, str]:
    """Splits the weights over several files with an index; returns the index' map."""
    path = folder / "model.safetensors"
    tensors = load_file(path)
    path.unlink()
    places = {name: f"model-{number % files + 1:05}-of-{files:05}.safetensors" for number, name in enumerate(tensors)}
    for file in set(places.values()):
        save_file({name: tensor for name, tensor in tensors.items() if places[name] == file}, folder / file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    return places


def same(first, second) -> bool:
    return all(np.array_equal(first[name], second[name]) for name in first) and first.keys() == second.keys()


@pytest.mark.long
def test_an_imported_model_is_loaded_exported_and_started_from_but_not_trained(folder, tmp_path, capsys):
    imported = tmp_path / "run"
    assert run(["import", str(folder), str(imported)]) == 0
    printed = " ".join(capsys.readouterr().err.split())
    assert "3 layers of width 32" in printed and "GELU by erf" in printed and "62 taken" in printed
    (kept,) = RunDirectory(imported).readings()
    assert kept.subject == f"model {folder}" and ("activation", "GELU by erf (config.json)") in [*kept.rows()]
    first, second = bert_jax.load(folder), bert_jax.load(imported)
    text = "piece1 piece2 [MASK] piece3"
    assert first.config == second.config and first.fill_mask(text) == second.fill_mask(text)
    assert run(["export", str(imported), str(tmp_path / "again")]) == 0
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()
    before, after = (json.loads((place / "config.json").read_text()) for place in (folder, tmp_path / "again"))
    assert all(after[name] == before[name] for name in before.keys() & after.keys())
    assert after["architectures"] == ["BertForPreTraining"]
    capsys.readouterr()
    assert run(["pretrain", str(imported), "--workdir", str(imported)]) == 2
    assert "start a run from it: --init" in capsys.readouterr().err
    assert run(["import", str(folder), str(imported)]) == 2
    assert "exists already" in capsys.readouterr().err


def test_an_index_leads_to_several_files_and_tensors_that_it_leaves_out_are_named(folder):
    whole = open_model_directory(folder).parameters()
    places = sharded(folder)
    listed = {name: place for name, place in places.items() if not name.startswith("cls.seq_")}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": listed}))
    parts = open_model_directory(folder)
    assert jax.tree.all(jax.tree.map(np.array_equal, whole["bert"], parts.parameters()["bert"]))
    assert parts.absent == {"next_sentence"}
    assert set(parts.unused) == {"cls.seq_relationship.weight", "cls.seq_relationship.bias"}


def test_the_one_file_is_taken_before_an_index_that_an_earlier_save_left(folder, capsys):
    weights, content = folder / "model.safetensors", (folder / "model.safetensors").read_bytes()
    sharded(folder)
    weights.write_bytes(content)
    with_tensors(folder, lambda tensors: tensors | {"cls.predictions.bias": tensors["cls.predictions.bias"] + 1})
    newer = load_file(weights)["cls.predictions.bias"]
    bias = open_model_directory(folder).parameters()["masked_lm"]["bias"]
    np.testing.assert_array_equal(bias[: len(newer)], newer)
    assert "model.safetensors.index.json isn't read: model.safetensors is beside it" in capsys.readouterr().err


def test_old_names_an_encoder_by_itself_and_what_is_left_over(folder):
    def old(tensors):
        renamed = {}
        for name, tensor in tensors.items():
            if name.startswith("bert."):
                name = name.removeprefix("bert.")
                name = name.replace("LayerNorm.weight", "LayerNorm.gamma").replace("LayerNorm.bias", "LayerNorm.beta")
                renamed[name] = tensor
        return renamed | {
            "embeddings.position_ids": np.arange(24),
            "classifier.weight": np.zeros((2, 32), np.float32),
            "something.else": np.zeros(3, np.float32),
            "encoder.layer.1.attention.output.adapter.weight": np.zeros((2, 2), np.float32),
        }

    whole = open_model_directory(folder).parameters()
    with_tensors(folder, old)
    model = open_model_directory(folder)
    assert model.absent == {"masked_lm", "next_sentence"}
    assert model.unused == {
        "embeddings.position_ids": "the positions' numbers, not learned",
        "classifier.weight": "a fine-tuned model's head",
        "something.else": "not a tensor of BERT",
        "encoder.layer.1.attention.output.adapter.weight": "not a tensor of BERT",
    }
    norm = model.parameters()["bert"]["embeddings"]["norm"]
    assert same(norm, whole["bert"]["embeddings"]["norm"])


def test_tied_tensors_are_taken_for_what_they_repeat(folder):
    table, own = "bert.embeddings.word_embeddings.weight", "cls.predictions.bias"
    decoder, bias = "cls.predictions.decoder.weight", "cls.predictions.decoder.bias"
    whole, tensors = open_model_directory(folder).parameters(), load_file(folder / "model.safetensors")
    rest = {name: tensor for name, tensor in tensors.items() if name != own}
    with_tensors(folder, lambda _: rest | {decoder: tensors[table], bias: tensors[own]})
    model = open_model_directory(folder)
    assert not model.unused and same(model.parameters()["masked_lm"]["norm"], whole["masked_lm"]["norm"])
    np.testing.assert_array_equal(model.parameters()["masked_lm"]["bias"], whole["masked_lm"]["bias"])
    with_tensors(folder, lambda _: rest | {decoder: tensors[table] + 1, bias: tensors[own]})
    with pytest.raises(UsageError, match="decoder.weight differs from bert.embeddings.word_embeddings.weight"):
        open_model_directory(folder)
    with_tensors(folder, lambda _: rest | {decoder: tensors[table], bias: tensors[own], own: tensors[own] + 1})
    with pytest.raises(UsageError, match="BERT has one bias for the vocabulary.* delete cls.*decoder.bias"):
        open_model_directory(folder)


def test_a_tokenizer_json_gives_the_ids_of_its_vocab_txt(folder, capsys):
    text = "piece1 piece22 none"
    before = open_model_directory(folder).tokenizer.encode(text)
    _tokenizer()(folder)
    (folder / "vocab.txt").unlink()
    after = open_model_directory(folder).tokenizer
    assert after.encode(text) == before and after.cleaning.lowercase
    assert not open_model_directory(folder, lowercase=False).tokenizer.cleaning.lowercase


def test_a_tokenizer_json_is_followed_where_it_differs_from_berts(folder):
    steps = {"clean_text": False, "handle_chinese_chars": False, "strip_accents": None, "lowercase": False}
    _tokenizer(normalizer={"type": "BertNormalizer", **steps})(folder)
    model = json.loads((folder / "tokenizer.json").read_text())["model"]
    sizes = {"unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100}
    changed(folder / "tokenizer.json", model=model | sizes)
    (folder / "tokenizer_config.json").write_text('{"tokenizer_class": "PreTrainedTokenizerFast"}')
    followed = open_model_directory(folder).tokenizer
    theirs = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    for other in ("piece1\0piece2", "Piece3 piece4 中文", "piece1 piece22 none"):
        assert followed.encode(other) == theirs.encode(other).ids
    assert not isinstance(followed, WordPieceTokenizer)


def test_the_command_for_a_pickle_keeps_its_class_and_is_quoted(folder, tmp_path):
    (folder / "model.safetensors").rename(folder / "pytorch_model.bin")
    odd = tmp_path / "it's $(here)"
    folder.rename(odd)
    with pytest.raises(UsageError, match="is a pickle, which .*BertForPreTraining.from_pretrained") as refusal:
        open_model_directory(odd)
    command = str(refusal.value).partition("safe: ")[2].partition(" ; and")[0]
    assert shlex.split(command)[3:] == [str(odd), "converted"]
    for name in ("optimizer.pt", "scheduler.pt", "rng_state_0.pth", "a.bin"):
        (odd / name).touch()
    with pytest.raises(UsageError, match="/pytorch_model.bin is a pickle"):
        open_model_directory(odd)
    for name in ("pytorch_model.bin", "a.bin"):
        (odd / name).unlink()
    with pytest.raises(UsageError, match="has neither model.safetensors nor a TensorFlow checkpoint"):
        open_model_directory(odd)


def test_half_precision_becomes_float32(folder):
    with_tensors(folder, lambda tensors: {name: tensor.astype(np.float16) for name, tensor in tensors.items()})
    word = open_model_directory(folder).parameters()["bert"]["embeddings"]["word"]
    assert word.dtype == np.float32 and word.any()


def _settings(file: str, **changes):
    def spoil(folder: Path):
        path = folder / file
        if not path.exists():
            path.write_text("{}")
        changed(path, **changes)

    return spoil


def _filled(name: str, number, dtype=np.float32):
    return lambda folder: with_tensors(folder, lambda tensors: tensors | {name: np.full(32, number, dtype)})


def _another(name: str, like: str):
    return lambda folder: with_tensors(folder, lambda tensors: tensors | {name: tensors[like]})


def _tokenizer(**changes):
    """A tokenizer.json of the model's vocabulary, with `changes`."""

    def write(folder: Path):
        pieces = (folder / "vocab.txt").read_text().splitlines()
        whole = {
            "model": {"type": "WordPiece", "vocab": {piece: number for number, piece in enumerate(pieces)}},
            "normalizer": {"type": "BertNormalizer", "lowercase": True},
            "pre_tokenizer": {"type": "BertPreTokenizer"},
            "added_tokens": [],
        }
        (folder / "tokenizer.json").write_text(json.dumps(whole | changes))

    return write


def _header(**entry):
    return lambda folder: with_header(folder, lambda header: header["cls.predictions.bias"].update(entry))


def _eight_bits(folder: Path) -> None:
    """Writes all weights in float8."""
    path = folder / "model.safetensors"
    header, end = {}, 0
    for name, tensor in load_file(path).items():
        header[name] = {"dtype": "F8_E4M3", "shape": tensor.shape, "data_offsets": [end, end := end + tensor.size]}
    written = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(written)) + written + bytes(end))


def _index(place: str):
    def spoil(folder: Path):
        places = sharded(folder)
        places["cls.predictions.bias"] = place
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))

    return spoil


def _large_header(folder: Path) -> None:
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", 10**12) + content[HEADER_BYTES:])


def _lines(*pieces: str, folder: Path) -> None:
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces))


SPOILED = {
    "half a head": (dropped("cls.predictions.bias"), "a part of masked_lm only: the tensor cls.predictions.bias is"),
    "another shape": (_settings("config.json", intermediate_size=50), "(48, 32) and its config asks for (50, 32)"),
    "more layers": (_settings("config.json", num_hidden_layers=500), "lacks the tensor bert.encoder.layer.3."),
    "fewer layers": (_settings("config.json", num_hidden_layers=2), "is of layer 2, numbered from 0"),
    "another id of [MASK]": (_settings("config.json", mask_token_id=7), "mask_token_id is 7, and [MASK] is piece 4"),
    "an absurd size": (_settings("config.json", vocab_size=10**15), "vocab_size is 1000000000000000; a size from 1 to"),
    "no size": (_settings("config.json", hidden_size=None), "hidden_size is None; a size"),
    "another family": (_settings("config.json", model_type="robrta"), "did you mean roberta"),
    "relative positions": (_settings("config.json", position_embedding_type="relative_key"), "embedding_type is"),
    "another activation": (_settings("config.json", hidden_act="relu"), "hidden_act is 'relu'; bert_jax has gelu"),
    "no JSON": (lambda folder: (folder / "config.json").write_text("{"), "it is no JSON"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "has neither model.safetensors nor"),
    "an oversized header": (_large_header, "says that its header has 1,000,000,000,000 bytes"),
    "overlapping tensors": (_header(data_offsets=[0, 388]), "is no good safetensors file"),
    "an index leading outside": (_index("../secret.safetensors"), "'../secret.safetensors', which is no safetensors"),
    "an index to no file": (_index("none.safetensors"), "none.safetensors can't be read"),
    "an index to another file": (_index("model-00003-of-00003.safetensors"), "lacks cls.predictions.bias, which model"),
    "no vocabulary": (lambda folder: (folder / "vocab.txt").unlink(), "has no vocabulary; put the model's"),
    "more pieces than rows": (
        lambda folder: _lines("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *map(str, range(93)), folder=folder),
        "the vocabulary has 98 pieces and the model's table 97 rows",
    ),
    "another [MASK]": (
        _settings("tokenizer_config.json", added_tokens_decoder={"103": {"content": "[MASK]"}}),
        "the added token '[MASK]' has the number 103 and its place is 4",
    ),
    "one tensor under two names": (_another("bert.pooler.dense.gamma", "bert.pooler.dense.weight"), "are names of one"),
    "a head for pairs without pooler": (dropped("bert.pooler."), "has a head for pairs and no pooler"),
    "a number that is none": (_filled("bert.pooler.dense.bias", np.nan), "dense.bias holds numbers that aren't fi"),
    "whole numbers": (_filled("bert.pooler.dense.bias", 1, np.int32), "holds int32 numbers; one of float32"),
    "settings of other types": (_settings("tokenizer_config.json", added_tokens_decoder=[1]), "tokens_decoder is"),
    "words split otherwise": (_tokenizer(pre_tokenizer={"type": "WhitespaceSplit"}), "isn't read here; give a BPE"),
    "another sign of continuation": (
        _tokenizer(model={"type": "WordPiece", "vocab": {}, "continuing_subword_prefix": "@@"}),
        "and ## before pieces within words",
    ),
    "one piece, two ids": (_tokenizer(added_tokens=[added_token("[MASK]", 9)]), "has the number 9 and its place is 4"),
    "a key that isn't known": (
        _tokenizer(pre_tokenizer={"type": "BertPreTokenizer", "later": True}),
        "has 'pre_tokenizer.later', which isn't read here",
    ),
    "half a character in a piece": (_tokenizer(added_tokens=[{"id": 97, "content": "\ud800"}]), "half of a surrogate"),
    "numbers of thousands of digits": (
        _settings("tokenizer_config.json", added_tokens_decoder={"9" * 5_000: {"content": "[MASK]"}}),
        "string should match pattern '^[0-9]{1,9}$'",
    ),
    "an absurd length": (_settings("tokenizer_config.json", model_max_length=10**400), "model_max_length is"),
    "pieces numbered by words": (
        _tokenizer(model={"type": "WordPiece", "vocab": {"a": "0"}}),
        "the piece 'a' has the number '0'; expected an integer",
    ),
    "a million wrong pieces": (_tokenizer(added_tokens=[{}] * 300_000), "is no good tokenizer.json"),
    "a tokenizer.json of 33 MB": (_tokenizer(x="x" * 33_000_000), "more than 32,000,000 bytes, which no such file"),
    "numbers in eight bits": (_eight_bits, "holds F8_E4M3 numbers, which aren't read here"),
    "an epsilon in words": (_settings("config.json", layer_norm_eps=[1]), "layer_norm_epsilon is layer_norm_eps there"),
    "no config": (lambda folder: (folder / "config.json").unlink(), "has neither config.json nor bert_config.json"),
}


@pytest.mark.parametrize("name", SPOILED)
def test_what_is_damaged_or_does_not_belong_together_is_refused_in_one_line(folder, name):
    spoil, words = SPOILED[name]
    spoil(folder)
    with pytest.raises(UsageError) as refusal:
        open_model_directory(folder).parameters()
    assert words in str(refusal.value) and "\n" not in str(refusal.value)


READ = ["config.json", "model.safetensors", "vocab.txt", "tokenizer.json", "tokenizer_config.json"]
"""Files of a folder in which all of them are."""


@pytest.mark.parametrize("name", [*READ, "bert_config.json", "model.safetensors.index.json"])
def test_a_damaged_file_is_refused_in_a_line_or_the_folder_works(folder, name, slow):
    model = open_model_directory(folder)
    write_tokenizer(model.tokenizer, folder, 24)
    if name == "vocab.txt":
        (folder / "tokenizer.json").unlink()
    if name == "model.safetensors.index.json":
        sharded(folder)
    if name == "bert_config.json":
        (folder / "config.json").rename(folder / name)

    def read():
        if "token" in name or name == "vocab.txt":
            read_tokenizer(PublishedFolder(folder), model.config).tokenizer.encode("piece1 piece2")
        elif "safetensors" in name:
            tensors, _ = read_safetensors(folder)
            select(tensors, model.config, folder, RELATIVES["bert"])
            [tensor.read() for tensor in tensors.values()]
        else:
            open_model_directory(folder)

    attack(read, folder / name, count=5_000 if slow else 60)


@pytest.mark.parametrize("lowercase", [False, True])
def test_casing_that_contradicts_the_vocabulary_is_refused(folder, lowercase):
    letters = string.ascii_lowercase
    small = [f"{first}{second}" for first in letters for second in f"{letters}{string.digits}-=+_"]
    pieces = [*small[:600], *map(str.title, small[:500])] if lowercase else small
    _lines("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *pieces, folder=folder)
    size = 5 + len(pieces)
    changed(folder / "config.json", vocab_size=size)
    resized = {
        "bert.embeddings.word_embeddings.weight": np.zeros((size, 32), np.float32),
        "cls.predictions.bias": np.zeros(size, np.float32),
    }
    with_tensors(folder, lambda tensors: tensors | resized)
    assert open_model_directory(folder).tokenizer.cleaning.lowercase is not lowercase
    (folder / "tokenizer_config.json").write_text(json.dumps({"do_lower_case": lowercase}))
    with pytest.raises(UsageError, match="set lowercase to"):
        open_model_directory(folder)


def test_an_encoder_by_itself_encodes_and_fills_no_masks(folder, tmp_path, capsys):
    whole = bert_jax.load(folder).encode(["piece1 piece2"])
    dropped("bert.pooler.", "cls.seq_")(folder)
    assert bert_jax.load(folder).encode(["piece1 piece2"]).pooled is None
    dropped("cls.")(folder)
    assert run(["import", str(folder), str(tmp_path / "run")]) == 0
    vectors = bert_jax.load(tmp_path / "run").encode(["piece1 piece2"])
    np.testing.assert_array_equal(vectors.tokens, whole.tokens)
    assert vectors.pooled is None
    assert run(["fill-mask", str(tmp_path / "run"), "piece1 [MASK]"]) == 2
    assert "the model has no masked-language head" in capsys.readouterr().err
    assert run(["export", str(tmp_path / "run"), str(tmp_path / "again")]) == 0
    written = load_file(tmp_path / "again" / "model.safetensors")
    assert {f"bert.{name}" for name in written} == load_file(folder / "model.safetensors").keys()


@pytest.mark.long
@pytest.mark.parametrize(
    "names, code", [(("cls.seq_relationship", "bert.pooler"), 0), (("cls.",), 2)], ids=["no head for pairs", "no head"]
)
def test_an_imported_model_is_measured_on_text_as_far_as_it_has_heads(folder, corpus, tmp_path, names, code, capsys):
    dropped(*names)(folder)
    assert run(["import", str(folder), str(tmp_path / "run")]) == 0
    assert run(["evaluate", str(tmp_path / "run"), "--data", str(corpus)]) == code
    printed = capsys.readouterr()
    assert "NSP accuracy" not in printed.out
    assert ("without masked-language head" in printed.err) == (code == 2)


@pytest.mark.long
def test_rows_without_a_piece_are_kept_and_never_predicted_and_parts_that_are_missing_are_random(
    folder, tiny_config, tmp_path, capsys
):
    pieces = (folder / "vocab.txt").read_text().splitlines()
    _lines(*pieces[:90], folder=folder)
    assert run(["import", str(folder), str(tmp_path / "run")]) == 0
    assert "97 rows for 90 pieces: 7 are kept and never predicted" in " ".join(capsys.readouterr().err.split())
    bert = bert_jax.load(tmp_path / "run")
    assert sorted(piece for piece, _ in bert.fill_mask("piece1 [MASK]", top=97)[0]) == sorted(pieces[:90])
    assert run(["export", str(tmp_path / "run"), str(tmp_path / "again")]) == 0
    assert (tmp_path / "again" / "model.safetensors").read_bytes() == (folder / "model.safetensors").read_bytes()

    (tmp_path / "longer.txt").write_text("\n".join([*pieces[:90], "newword", "longword"]))
    sizes = {"num_layers": 3, "hidden_size": 32, "num_heads": 4, "feedforward_size": 48, "max_positions": 24}
    model = ModelConfig(**sizes, activation="gelu_erf")  # the shape of the golden one
    settings = tiny_config.replace(
        model=model,
        phases=(Phase(steps=2, length=24, batch_size=8),),
        init=str(folder),
        vocabulary=VocabularyConfig(file=str(tmp_path / "longer.txt")),
    )
    with pytest.raises(UsageError, match="--model.word-rows is 97 there and None here"):
        open_initial(settings, OpenedModels())
    settings = settings.replace(model=model.replace(word_rows=97))
    longer = load_tokenizer(tmp_path / "longer.txt")
    params = initial_parameters(open_initial(settings, OpenedModels()), settings, longer, make_mesh(settings.mesh))
    word = params["bert"]["embeddings"]["word"]
    before = bert.params["bert"]["embeddings"]["word"]
    np.testing.assert_array_equal(np.delete(word, [90, 91], axis=0), np.delete(before, [90, 91], axis=0))

    shapes = {name: tensor.shape for name, tensor in load_file(folder / "model.safetensors").items()}
    dropped("cls.")(folder)
    still = settings.optimizer.replace(peak_learning_rate=1e-12)
    capsys.readouterr()
    pretrain(settings.replace(optimizer=still), RunDirectory(tmp_path / "trained"))
    assert capsys.readouterr().err.count("the model to start from has no head for pairs: random") == 1
    assert run(["export", str(tmp_path / "trained"), str(tmp_path / "last")]) == 0
    trained, given = (load_file(place / "model.safetensors") for place in (tmp_path / "last", folder))
    assert {name: tensor.shape for name, tensor in trained.items()} == shapes
    query = "bert.encoder.layer.1.attention.self.query.weight"
    np.testing.assert_allclose(trained[query], given[query], atol=1e-8)
    assert np.std(trained["cls.predictions.transform.dense.weight"]) > 0.01


@pytest.mark.parametrize(
    "prefix, of_encoder, others",
    [
        ("module._orig_mod.", False, {}),
        ("_forward_module.", True, {}),
        ("encoder.", True, {}),
        ("encoder.", False, {"classifier.weight": "a fine-tuned model's head", "scale": "not a tensor of BERT"}),
    ],
)
def test_what_a_wrapper_puts_before_names_is_left_out(prefix, of_encoder, others, folder, capsys):
    """Before all names, or where the other tensors aren't used."""
    tensors = load_file(folder / "model.safetensors")
    if of_encoder:
        tensors = {name[5:]: tensor for name, tensor in tensors.items() if name.startswith("bert.")}
    save_file(tensors, folder / "model.safetensors")
    before = open_model_directory(folder)
    wrapped = {prefix + name: tensor for name, tensor in tensors.items()}
    save_file(wrapped | {name: np.zeros(2, np.float32) for name in others}, folder / "model.safetensors")
    after = open_model_directory(folder)
    which = f"{len(wrapped)} of {len(wrapped) + 2}" if others else "all"
    assert f"the names of {which} tensors begin with {prefix}, which is left out" in capsys.readouterr().err
    assert jax.tree.all(jax.tree.map(np.array_equal, before.parameters(), after.parameters()))
    assert after.absent == before.absent and after.unused == others


def test_a_prefix_is_kept_where_other_tensors_would_be_used(folder):
    wrapped = {f"encoder.{name}": tensor for name, tensor in load_file(folder / "model.safetensors").items()}
    save_file(wrapped | {"cls.predictions.bias": np.zeros(2, np.float32)}, folder / "model.safetensors")
    with pytest.raises(UsageError, match="lacks the tensor"):
        open_model_directory(folder)


def test_a_student_and_a_teacher_in_one_file_are_refused(folder):
    with_tensors(folder, lambda all: {f"{one}.{name}": all[name] for one in ("student", "teacher") for name in all})
    with pytest.raises(UsageError, match=r"names of tensors fit after student\. and after teacher\.; keep"):
        open_model_directory(folder)


def test_the_smaller_of_two_lengths_and_the_padding_of_the_tokenizer_are_taken(folder, capsys):
    _settings("tokenizer_config.json", model_max_length=512)(folder)
    _settings("config.json", pad_token_id=3)(folder)
    model = open_model_directory(folder)
    said = " ".join(capsys.readouterr().err.split())
    assert model.config.max_positions == 24 and "the model has 24 positions: the smaller number is taken" in said
    assert model.tokenizer.vocabulary.pad_id == 0 and "padding is piece 0, as the tokenizer says" in said


def test_a_checkpoint_of_fairseq_is_called_one(tmp_path):
    for name in ("model.pt", "dict.txt"):
        (tmp_path / name).write_bytes(b"")
    with pytest.raises(UsageError, match="model.pt is fairseq's checkpoint, a pickle"):
        open_model_directory(tmp_path)


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        ("adapter_config.json", "is an adapter and no whole model; merge it"),
        ("adapter_model.bin", "is an adapter and no whole model; merge it"),
        ("m.Q4_K_M.gguf", "is a model in GGUF"),
        ("model.onnx", "is a model in ONNX"),
        ("onnx/model_quantized.onnx", "is a model in ONNX"),
        ("elmo_weights.hdf5", "is a file in HDF5, as ELMo's weights"),
        ("tf_model.h5", "give the model as safetensors"),
    ],
)
@pytest.mark.parametrize("with_config", [True, False])
def test_a_folder_without_readable_weights_is_refused_for_what_it_holds(folder, tmp_path, file, reason, with_config):
    (folder / "model.safetensors").unlink()
    if not with_config:
        shutil.rmtree(folder)
    (folder / file).parent.mkdir(parents=True, exist_ok=True)
    (folder / file).write_bytes(b"{}")
    for read in (open_model_directory, bert_jax.load):
        with pytest.raises(UsageError, match=f"{file} .*{reason}"):
            read(folder)


def test_an_adapter_beside_a_model_is_said_and_one_amid_its_tensors_refused(folder, capsys):
    (folder / "adapter_config.json").write_text("{}")
    open_model_directory(folder)
    assert "adapter_config.json, are an adapter and aren't used; merge it" in capsys.readouterr().err
    with_tensors(
        folder, lambda tensors: {name.replace("query.w", "query.base_layer.w"): t for name, t in tensors.items()}
    )
    with pytest.raises(UsageError, match="its tensors are named as a model and an adapter .base_layer.; merge it"):
        open_model_directory(folder)


@pytest.mark.parametrize("right", ["a", "b"])
def test_of_two_copies_of_a_tensor_the_one_that_the_index_names_is_read(tmp_path, right):
    for number, name in enumerate("ab"):
        save_file(
            {"x": np.full(2, number, np.float32), name: np.zeros(1, np.float32)}, tmp_path / f"{name}.safetensors"
        )
    places = {"a": "a.safetensors", "b": "b.safetensors", "x": f"{right}.safetensors"}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    tensors, others = read_safetensors(tmp_path)
    assert tensors["x"].read().tolist() == ["ab".index(right)] * 2 and not others


def test_the_reading_of_an_encoder_alone_counts_what_is_not_used_as_the_table_does(folder):
    model = open_model_directory(folder).encoder_alone("it isn't needed")
    [value] = [fact.value for fact in model.reading.facts if fact.name == "tensors"]
    assert model.unused and f"{len(model.tensors)} taken, {len(model.unused)} not used" in value


def test_the_command_exports_a_fine_tuned_run(fine_tuned, write_run, tmp_path, capsys):
    write_run(fine_tuned("span"), tmp_path / "run")
    assert run(["export", str(tmp_path / "run"), str(tmp_path / "model")]) == 0
    assert "exported a BertForQuestionAnswering to" in capsys.readouterr().err
    assert "qa_outputs.bias" in load_file(tmp_path / "model" / "model.safetensors")


def test_every_file_has_the_mode_that_the_umask_gives(fine_tuned, tmp_path):
    model, before = fine_tuned("class"), os.umask(0o027)
    try:
        write_model_directory(tmp_path / "model", *model[1:], model.task)
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "model").iterdir()} == {0o640}
