"""bert-jax features, as typed."""

import gzip
import json
import subprocess

import numpy as np
import pytest
from conftest import program
from warm_process import COMMAND

import bert_jax

LINES = ["The old cat.", "", "  The river\tcrosses the bridge. ", "dog " * 40]


@pytest.fixture(scope="module")
def lines(tmp_path_factory):
    path = tmp_path_factory.mktemp("texts") / "lines.txt.gz"
    path.write_bytes(gzip.compress("\r\n".join(LINES).encode()))
    return path


@pytest.mark.long
def test_a_line_is_a_text_and_an_empty_one_too(tiny_run, lines, tmp_path, done):
    said = done("features", tiny_run.path, lines, tmp_path / "out.npz").err
    assert "1 of 4 texts are longer than 32 tokens" in said and "out.npz: features of 4 texts" in said
    expected = list(bert_jax.load(tiny_run.path).features(LINES))
    with np.load(tmp_path / "out.npz") as found:
        np.testing.assert_allclose(found["vectors"], np.concatenate([one.vectors for one in expected]), atol=2e-6)
        assert found["pieces"].tolist() == [piece for one in expected for piece in one.pieces]
        assert np.diff(found["offsets"]).tolist() == [len(one.pieces) for one in expected]


def test_columns_are_texts_or_pairs(tiny_run, tmp_path, done):
    rows = [{"a": "The cat.", "b": {"c": "It sees."}}, {"a": None, "b": {"c": "The dog."}}]
    (tmp_path / "in.jsonl").write_text("\n".join(map(json.dumps, rows)))
    flags = ["--texts", "a", "b.c", "--layers", "-1", "0", "--join", "sum", "--pool", "mean", "--dtype", "float16"]
    done("features", tiny_run.path, tmp_path / "in.jsonl", tmp_path / "out.jsonl", *flags)
    pairs = [("The cat.", "It sees."), ("", "The dog.")]
    expected = bert_jax.load(tiny_run.path).features(pairs, [-1, 0], "sum", "mean", "float16")
    for line, pair, one in zip((tmp_path / "out.jsonl").read_text().splitlines(), pairs, expected, strict=True):
        row = json.loads(line)
        assert (row["text"], row["text_pair"]) == pair and row.keys() == {"text", "text_pair", "model", "vector"}
        np.testing.assert_allclose(row["vector"], one.vectors, atol=2e-3)


def test_texts_come_from_standard_input(tiny_run, tmp_path):
    line = ["features", tiny_run.path, "-", tmp_path / "out.npz", "--pool", "cls"]
    process = program(COMMAND, *line, stdin=subprocess.PIPE)
    process.communicate(b"The cat.\n\nThe dog.\n")
    assert process.returncode == 0
    with np.load(tmp_path / "out.npz") as found:
        assert found["vectors"].shape == (3, 64)


def vectors_in(path) -> np.ndarray:
    if path.suffix == ".npz":
        with np.load(path) as found:
            assert found.files == ["vectors"]
            return found["vectors"]
    return np.array([json.loads(line)["vector"] for line in path.read_text().splitlines()])


@pytest.mark.parametrize("name, flags, width", [("out.npz", [], 32), ("out.jsonl", ["--width", "8"], 8)])
def test_a_run_trained_for_vectors_writes_them(vectors_run, lines, tmp_path, done, name, flags, width):
    said = done("features", vectors_run.path, lines, tmp_path / name, *flags).err
    assert f"{name}: features of 4 texts, of each the mean over its tokens (layer 2; {width} numbers, norm" in said
    expected = bert_jax.load(vectors_run.path).embed(LINES, width)
    np.testing.assert_allclose(vectors_in(tmp_path / name), expected, atol=2e-6)


@pytest.mark.parametrize(
    "flags, what",
    [
        (["--layers", "-1"], "a vector of each token (layer 2)"),
        (["--join", "sum"], "a vector of each token (layers 2 1 by sum)"),
        (["--layers", "1", "-1", "--pool", "max"], "the maximum over its tokens (layers 1 2 by concat)"),
    ],
)
def test_flags_of_layers_choose_the_same_of_any_run(vectors_run, tiny_run, lines, tmp_path, done, flags, what):
    for path in (vectors_run.path, tiny_run.path):
        said = done("features", path, lines, tmp_path / f"{path.name}.npz", *flags).err
        assert f"features of 4 texts, of each {what}" in said
    one, other = (np.load(tmp_path / f"{path.name}.npz")["vectors"] for path in (vectors_run.path, tiny_run.path))
    np.testing.assert_allclose(one, other, atol=2e-6)


def test_a_width_of_a_run_that_was_not_trained_for_vectors_is_of_means(tiny_run, lines, tmp_path, done):
    said = done("features", tiny_run.path, lines, tmp_path / "out.npz", "--width", "8").err
    assert "the model was not trained for vectors of texts" in said
    expected = bert_jax.load(tiny_run.path).embed(LINES, 8)
    np.testing.assert_allclose(vectors_in(tmp_path / "out.npz"), expected, atol=2e-6)
