"""Models of sentence-transformers (tests/golden/make_vectors.py): read with their pooling, imported and exported."""

import json
import shutil
from functools import partial
from pathlib import Path

import jax
import numpy as np
import pytest
from safetensors.numpy import load_file

import bert_jax
from bert_jax.cli.main import run
from bert_jax.inference.batches import token_sequences
from bert_jax.inference.bert import Bert
from bert_jax.layout import lay_out_sequences
from bert_jax.model.task import PooledEncoder, normalised
from bert_jax.run.trained_model import TrainedModel
from bert_jax.system.errors import UsageError

GOLDEN = Path(__file__).parents[1] / "golden"
FOLDERS = ("bert", "roberta")
LONGEST = 12
"""Tokens that the texts are cut to, as in make_vectors.py."""


@pytest.fixture(params=FOLDERS)
def folder(request, tmp_path):
    shutil.copytree(GOLDEN / "vectors" / request.param, tmp_path / "model")
    return tmp_path / "model"


@pytest.fixture
def bert_folder(tmp_path):
    shutil.copytree(GOLDEN / "vectors" / "bert", tmp_path / "model")
    return tmp_path / "model"


def write(path: Path, value: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value))


def vectors_of(bert: Bert, texts: list[str]) -> jax.Array:
    rows = list(token_sequences(texts, bert.tokenizer, bert.task.max_length))
    tokens = lay_out_sequences(rows, (len(rows), LONGEST), bert.tokenizer.vocabulary.pad_id)
    encoder = PooledEncoder(bert.config, bert.task.pool)
    return normalised(jax.jit(partial(encoder.apply, {"params": bert.params}))(tokens)[:, 0])


def check_vectors(path: Path, source: Path, pool: str) -> None:
    """Checks the vectors of the model at `path` against those that sentence-transformers made of `source`."""
    bert = bert_jax.load(path)
    assert (bert.task.kind, bert.task.pool, bert.task.max_length) == ("vectors", pool, LONGEST)
    texts = json.loads((source / "texts.json").read_text())
    expected = load_file(source / "expected.safetensors")[pool]
    np.testing.assert_allclose(vectors_of(bert, texts), expected, atol=1e-6)


@pytest.mark.long(first=1)
def test_the_vectors_are_theirs_before_and_after_import_and_export(folder, tmp_path):
    ways = {"mean": "mean_tokens", "cls": "cls_token", "max": "max_tokens"}
    is_new = "pooling_mode" in json.loads((folder / "1_Pooling" / "config.json").read_text())
    for pool in ways:
        old = {f"pooling_mode_{way}": name == pool for name, way in ways.items()}
        write(folder / "1_Pooling" / "config.json", {"pooling_mode": pool} if is_new else old)
        check_vectors(folder, folder, pool)
    assert run(["import", str(folder), str(tmp_path / "run")]) == 0
    assert TrainedModel.open(tmp_path / "run").shapes.keys() == {"bert"}
    check_vectors(tmp_path / "run", folder, pool)
    assert run(["export", str(tmp_path / "run"), str(tmp_path / "exported")]) == 0
    check_vectors(tmp_path / "exported", folder, pool)


def test_an_export_has_the_files_that_every_version_of_the_library_reads(fine_tuned, write_run, tmp_path, capsys):
    write_run(fine_tuned("vectors"), tmp_path / "run")
    assert run(["export", str(tmp_path / "run"), str(tmp_path / "out")]) == 0
    assert "exported a BertModel to" in capsys.readouterr().err
    files = {name: json.loads((tmp_path / "out" / name).read_text()) for name in ("modules.json", "config.json")}
    assert [(one["idx"], one["path"], one["type"].rpartition(".")[2]) for one in files["modules.json"]] == [
        *((0, "", "Transformer"), (1, "1_Pooling", "Pooling"), (2, "2_Normalize", "Normalize"))
    ]
    assert files["config.json"]["architectures"] == ["BertModel"]
    assert json.loads((tmp_path / "out" / "1_Pooling" / "config.json").read_text()) == {
        "word_embedding_dimension": 16,
        "pooling_mode_cls_token": False,
        "pooling_mode_mean_tokens": False,
        "pooling_mode_max_tokens": True,
        "pooling_mode_mean_sqrt_len_tokens": False,
    }
    settings = json.loads((tmp_path / "out" / "sentence_bert_config.json").read_text())
    assert settings == {"max_seq_length": 16, "do_lower_case": False}
    assert json.loads((tmp_path / "out" / "config_sentence_transformers.json").read_text()) == {
        "prompts": {},
        "default_prompt_name": None,
        "similarity_fn_name": "cosine",
    }
    tensors = load_file(tmp_path / "out" / "model.safetensors")
    assert "embeddings.word_embeddings.weight" in tensors and not any("pooler" in name for name in tensors)


def test_a_directory_is_exported_as_its_run_is(bert_folder, tmp_path):
    for source, target in (("model", "run"), ("run", "first"), ("model", "second")):
        assert run(["import" if target == "run" else "export", str(tmp_path / source), str(tmp_path / target)]) == 0
    for name in ("model.safetensors", "config.json", "1_Pooling/config.json", "sentence_bert_config.json"):
        assert (tmp_path / "first" / name).read_bytes() == (tmp_path / "second" / name).read_bytes()


def test_lengths_of_old_and_new_files(bert_folder):
    write(bert_folder / "sentence_bert_config.json", {"max_seq_length": 99})
    assert bert_jax.load(bert_folder).task.max_length == 20  # its positions
    write(bert_folder / "sentence_bert_config.json", {"max_seq_length": None})
    assert bert_jax.load(bert_folder).task.max_length == LONGEST  # that of its tokenizer
    (bert_folder / "sentence_bert_config.json").rename(bert_folder / "sentence_roberta_config.json")
    write(bert_folder / "sentence_roberta_config.json", {"max_seq_length": 9, "do_lower_case": True})
    assert bert_jax.load(bert_folder).task.max_length == 9


ENCODER, POOLING, NORMALIZE = (
    f"sentence_transformers.models.{name}" for name in ("Transformer", "Pooling", "Normalize")
)


def modules(*types: str, paths: tuple[str, ...] = ("", "1_Pooling", "2_Normalize", "3")) -> list[dict]:
    return [{"idx": 0, "name": "0", "path": path, "type": name} for name, path in zip(types, paths, strict=False)]


POOL, LIBRARY, LENGTHS = "1_Pooling/config.json", "config_sentence_transformers.json", "sentence_bert_config.json"
REFUSED = {
    "a module that isn't there": (
        "modules.json",
        modules(ENCODER, POOLING, "sentence_transformers.models.Dense", NORMALIZE),
        "a module 'sentence_transformers.models.Dense', and bert_jax has Transformer, Pooling, Normalize; a copy of "
        "the folder without modules.json is read as the encoder alone",
    ),
    "the author's class": ("modules.json", modules("own_code.Transformer", POOLING), "a module 'own_code.Transformer'"),
    "an order": ("modules.json", modules(ENCODER, NORMALIZE, POOLING), "lists 'Transformer, Normalize, Pooling'"),
    "no pooling": ("modules.json", modules(ENCODER), "lists 'Transformer'"),
    "none": ("modules.json", [], "modules.json lists no modules"),
    "a type that is no text": ("modules.json", [{"type": 3}], "type is 3"),
    "no type": ("modules.json", [{"path": ""}], "it has no modules.0.type"),
    "a path outside": ("modules.json", modules(ENCODER, POOLING, paths=("", "../other")), "Pooling is '../other'"),
    "an absolute path": ("modules.json", modules(ENCODER, POOLING, paths=("", "/etc")), "Pooling is '/etc'"),
    "a missing folder": ("modules.json", modules(ENCODER, POOLING, paths=("", "9_Pooling")), "can't be read"),
    "a way of pooling": (POOL, {"pooling_mode": "weightedmean"}, "pools by 'weightedmean'; bert_jax has one of mean"),
    "an unknown way": (POOL, {"pooling_mode_new": True}, "pools by 'pooling_mode_new'"),
    "two ways": (POOL, {"pooling_mode_cls_token": True, "pooling_mode_mean_tokens": True}, "pools by 'cls and mean'"),
    "two new ways": (POOL, {"pooling_mode": ["cls", "max"]}, "pools by 'cls and max'"),
    "no name": (POOL, {"pooling_mode": 10**300}, "input should be a valid list"),
    "a width": (POOL, {"embedding_dimension": 17}, "embedding_dimension is 17 and the model's width 16"),
    "a width in quotes": (POOL, {"word_embedding_dimension": "16"}, "is '16': input should be a valid integer"),
    "a default that is no prompt": (LIBRARY, {"default_prompt_name": "ask"}, "'ask', which isn't"),
    "a name with =": (LIBRARY, {"prompts": {"a=b": "ask: "}}, "a prompt is called 'a=b'"),
    "a length that is no number": (LENGTHS, {"max_seq_length": "12"}, "max_seq_length is '12'"),
    "a length of thousands of digits": (LENGTHS, {"max_seq_length": -(10**999)}, "cuts texts to -1000"),
    "a length of a few pieces": (LENGTHS, {"max_seq_length": 7}, "cuts texts to 7 pieces, and bert_jax to 8 or more"),
    "another task": (LENGTHS, {"transformer_task": "fill-mask"}, "transformer_task is 'fill-mask'"),
    "another output": (
        LENGTHS,
        {"modality_config": {"text": {"method_output_name": "pooler_output"}}},
        "takes 'pooler_output' of a text",
    ),
    "other processing": (LENGTHS, {"processing_kwargs": {"text": {"padding": True}}}, "processing_kwargs is"),
    "a cut to nothing": (LIBRARY, {"truncate_dim": 0}, "truncate_dim is 0"),
    "prompts that are no texts": (LIBRARY, {"prompts": {"query": 3}}, "prompts.query is 3"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_other_vectors_are_refused_in_one_line(case, bert_folder):
    name, value, message = REFUSED[case]
    write(bert_folder / name, value)
    with pytest.raises(UsageError) as caught:
        bert_jax.load(bert_folder)
    assert message in str(caught.value) and "\n" not in str(caught.value)


def test_a_refused_folder_is_read_as_the_encoder_alone_by_other_trainings(bert_folder, tmp_path, capsys):
    write(bert_folder / "modules.json", modules(ENCODER))
    assert run(["import", str(bert_folder), str(tmp_path / "run")]) == 2 and not (tmp_path / "run").exists()
    capsys.readouterr()
    assert TrainedModel.open(bert_folder).task is None
    assert "is read as the encoder alone" in capsys.readouterr().err
    (bert_folder / "modules.json").unlink()
    assert bert_jax.load(bert_folder).task is None


def test_lowering_is_refused_where_the_tokenizer_keeps_capitals(tmp_path):
    shutil.copytree(GOLDEN / "vectors" / "roberta", tmp_path / "model")
    write(tmp_path / "model" / LENGTHS, {"max_seq_length": 12, "do_lower_case": True})
    with pytest.raises(UsageError, match="do_lower_case is true, and the tokenizer keeps capital letters"):
        bert_jax.load(tmp_path / "model")


def test_a_link_in_place_of_a_folder_is_refused(bert_folder, tmp_path):
    (bert_folder / "1_Pooling").rename(tmp_path / "elsewhere")
    (bert_folder / "1_Pooling").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match="expected a plain folder beside modules.json, not a link"):
        bert_jax.load(bert_folder)


def test_a_list_of_modules_that_cannot_be_read_is_not_taken_as_absent(bert_folder):
    (bert_folder / "modules.json").unlink()
    (bert_folder / "modules.json").symlink_to("absent.json")
    with pytest.raises(UsageError, match="modules.json can't be read"):
        bert_jax.load(bert_folder)


def test_the_layout_with_the_encoder_in_a_folder_of_its_own_is_refused_with_the_remedy(bert_folder):
    inside = bert_folder / "0_Transformer"
    inside.mkdir()
    for name in ("config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        (bert_folder / name).rename(inside / name)
    write(bert_folder / "modules.json", modules(ENCODER, POOLING, paths=("0_Transformer", "1_Pooling")))
    with pytest.raises(UsageError, match="is '0_Transformer'.*copy the files of that folder there"):
        bert_jax.load(bert_folder)


@pytest.mark.parametrize(
    "name, settings, words",
    [
        ("roberta", {}, "has no Normalize; bert_jax scales each vector to length 1"),
        ("roberta", {"similarity_fn_name": "dot"}, "similarity_fn_name is 'dot'; bert_jax compares by cosines"),
        ("bert", {"similarity_fn_name": "dot"}, None),  # its vectors have length 1, so that both rank alike
        ("bert", {"truncate_dim": 8}, "truncate_dim is 8; bert_jax gives vectors of all 16 numbers, and width=8 cuts"),
    ],
)
def test_a_line_says_where_vectors_or_ranks_differ(name, settings, words, tmp_path, capsys):
    shutil.copytree(GOLDEN / "vectors" / name, tmp_path / "model")
    write(tmp_path / "model" / LIBRARY, settings)
    bert = bert_jax.load(tmp_path / "model")
    said = capsys.readouterr().err
    assert words in said if words else "similarity" not in said
    assert bert.embed(["a"]).shape == (1, 16)
