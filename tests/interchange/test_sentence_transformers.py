"""Folders of sentence-transformers: what the library makes of our exports, and its prompts by role. Skipped without
it: pip install sentence-transformers."""

import json
import shutil
from pathlib import Path

import jax
import numpy as np
import pytest
from trained_tokenizers import trained

import bert_jax
from bert_jax.cli.main import run
from bert_jax.inference.batches import token_sequences
from bert_jax.interchange.export import write_model_directory
from bert_jax.interchange.relatives import RELATIVES
from bert_jax.layout import lay_out_sequences
from bert_jax.model.task import PooledEncoder, normalised
from bert_jax.system.errors import UsageError

transformers = pytest.importorskip("transformers")
sentence_transformers = pytest.importorskip("sentence_transformers")

GOLDEN = Path(__file__).parents[1] / "golden" / "vectors"
TEXTS = ["A quick brown fox", "foxes jumping", "", "a longer text of dogs, foxes and papers that is cut at its end"]
KINDS = {
    "e5": ({"query": "query: ", "passage": "passage: "}, None),
    "bge": ({"query": "Represent this sentence for searching relevant passages: ", "document": ""}, None),
    "nomic": ({"query": "search_query: ", "document": "search_document: ", "classification": "class: "}, None),
    "default": ({"query": "a=b: ", "clustering": "cluster: "}, "clustering"),
}


MODELS = {
    "bert": ("wordpiece", {}),
    "roberta": ("byte_bpe", {"num_segments": 1, "first_position": 2}),
    "electra": ("wordpiece", {"embedding_size": 12, "pooler": "gelu", "activation": "gelu_erf"}),
    "xlnet": ("unigram", RELATIVES["xlnet"].settings),
    "modernbert": ("byte_bpe", {**RELATIVES["modernbert"].settings, "local_window": 2, "global_every": 3}),
}
"""The tokenizer's kind and settings, by the kind of model."""


@pytest.mark.parametrize(
    "model_type, pool",
    [("bert", "cls"), ("roberta", "mean"), ("electra", "max"), ("modernbert", "cls")]
    + [("xlnet", pool) for pool in ("mean", "cls", "max")],  # whose padding is on the left
)
def test_the_vectors_of_an_export_are_ours(fine_tuned, model_type, pool, tmp_path):
    kind, settings = MODELS[model_type]
    ours = fine_tuned("vectors", tokenizer=trained(kind), model_type=model_type, num_layers=3, **settings)
    task = ours.task.replace(pool=pool)
    write_model_directory(tmp_path / "model", *ours[1:], task)
    theirs = sentence_transformers.SentenceTransformer(str(tmp_path / "model"), device="cpu")
    assert theirs.max_seq_length == task.max_length and len(theirs) == 3
    texts = ["A quick brown fox", "jumping foxes, over dogs!", "", "  中文 paper", "Zwölf Übungen " * 9]
    sequences = list(token_sequences(texts, ours.tokenizer, task.max_length))
    tokens = lay_out_sequences(sequences, (len(texts), task.max_length), ours.tokenizer.vocabulary.pad_id)
    found = normalised(jax.jit(PooledEncoder(ours.config, pool).apply)({"params": ours.params}, tokens)[:, 0])
    np.testing.assert_allclose(found, theirs.encode(texts), atol=1e-5)
    assert bert_jax.load(tmp_path / "model").task.pool == pool
    encoder = transformers.AutoModel.from_pretrained(tmp_path / "model")
    assert type(encoder).__name__ == f"{RELATIVES[model_type].classes}Model"


def folder(kind: str, source: str, include: bool, path: Path, pool: str = "mean") -> Path:
    shutil.copytree(GOLDEN / source, path)
    prompts, default = KINDS[kind]
    settings = {"prompts": prompts, "default_prompt_name": default}
    (path / "config_sentence_transformers.json").write_text(json.dumps(settings))
    pooling = {"embedding_dimension": 16, "pooling_mode": pool, "include_prompt": include}
    (path / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
    return path


def check(path: Path, kind: str) -> None:
    theirs, ours = sentence_transformers.SentenceTransformer(str(path), device="cpu"), bert_jax.load(path)
    unit = {"normalize_embeddings": True}
    pairs = [(None, theirs.encode(TEXTS, **unit)), ("query", theirs.encode_query(TEXTS, **unit))]
    pairs += [(name, theirs.encode(TEXTS, prompt_name=name, **unit)) for name, text in KINDS[kind][0].items() if text]
    if "passage" not in KINDS[kind][0]:  # encode_document takes no prompt of this name
        pairs.append(("document", theirs.encode_document(TEXTS, **unit)))
    for role, expected in pairs:
        np.testing.assert_allclose(ours.embed(TEXTS, role=role), expected, atol=2e-6, err_msg=f"{kind} {role}")


@pytest.mark.parametrize(
    "kind, source, include, pool",
    [("e5", "bert", True, "mean"), ("bge", "bert", False, "mean"), ("nomic", "roberta", False, "mean")]
    + [("default", "bert", False, "cls"), ("nomic", "bert", False, "max")],
)
def test_vectors_by_role_are_theirs(kind, source, include, pool, tmp_path):
    path = folder(kind, source, include, tmp_path / "model", pool)
    check(path, kind)
    if kind != "nomic":
        assert run(["import", str(path), str(tmp_path / "run")]) == 0
        assert run(["export", str(tmp_path / "run"), str(tmp_path / "out")]) == 0
        check(tmp_path / "out", kind)


def test_search_puts_the_prompts_of_both_sides(tmp_path, capsys):
    bert = bert_jax.load(folder("e5", "bert", True, tmp_path / "model"))
    [hit] = bert.search("a fox", ["foxes jumping"], top=1)
    [query], [passage] = bert.embed(["a fox"], role="query"), bert.embed(["foxes jumping"], role="passage")
    assert hit.score == pytest.approx(float(query @ passage), abs=2e-6)
    (tmp_path / "lines.txt").write_text("foxes jumping\n")
    args = ["features", str(tmp_path / "model"), str(tmp_path / "lines.txt"), str(tmp_path / "v.npz")]
    assert run(args) == 0
    assert "names no" not in (said := capsys.readouterr().err) and "name one by role" in said
    assert bert.search("a fox", tmp_path / "v.npz")[0].score != hit.score
    assert "was written with '' before each text" in capsys.readouterr().err.replace("\n", " ")
    assert run([*args, "--role", "passage"]) == 0
    capsys.readouterr()
    assert bert.search("a fox", tmp_path / "v.npz")[0].score == pytest.approx(hit.score, abs=2e-6)
    assert "before each text" not in capsys.readouterr().err
    with pytest.raises(UsageError, match="role='ask' is no role of texts; choose from query, passage"):
        bert.embed(["a fox"], role="ask")


def test_vectors_of_another_model_are_refused(tmp_path, capsys):
    one, other = (bert_jax.load(folder("e5", name, True, tmp_path / name)) for name in ("bert", "roberta"))
    (tmp_path / "lines.txt").write_text("foxes jumping\n")
    file = tmp_path / "v.npz"
    assert run(["features", str(tmp_path / "bert"), str(tmp_path / "lines.txt"), str(file), "--role", "passage"]) == 0
    with pytest.raises(UsageError, match="has vectors of another model .* write them anew"):
        other.search("a fox", file)
    assert run(["import", str(tmp_path / "bert"), str(tmp_path / "run")]) == 0
    assert bert_jax.load(tmp_path / "run").search("a fox", file) == one.search("a fox", file)
    np.savez(tmp_path / "foreign.npz", vectors=np.load(file)["vectors"])
    capsys.readouterr()
    assert one.search("a fox", tmp_path / "foreign.npz") == one.search("a fox", file)
    assert "doesn't say which model wrote it" in capsys.readouterr().err
