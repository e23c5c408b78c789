import json
import sys

import numpy as np
import pyarrow.parquet
import pytest

from bert_jax.inference import feature_files
from bert_jax.inference.feature_files import check_output, write_features
from bert_jax.inference.features import Feature
from bert_jax.inference.vector_file import Origin
from bert_jax.system.errors import UsageError

ORIGIN = Origin(model="0123456789abcdef", vectors="the mean over its tokens")
ENDS = [".npz", ".parquet", ".jsonl"]


def features(count, shape, pooled=False, dtype=np.float32, pair=False) -> list[Feature]:
    """Texts of 2, 3, 4, 2, ... tokens."""
    rng, found = np.random.default_rng(0), []
    for number in range(count):
        pieces = ["[CLS]", *["雪", "##ed"][: number % 3], "[SEP]"]
        vectors = rng.normal(size=shape if pooled else (len(pieces), *shape)).astype(dtype)
        found.append(Feature((f"a {number}", "雪") if pair else f"a {number}", pieces, vectors))
    return found


def rows_of(path) -> list[dict]:
    if path.suffix == ".parquet":
        return pyarrow.parquet.read_table(path).to_pylist()
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


def read(path, pooled) -> list[tuple[str | None, list[str] | None, np.ndarray]]:
    """Text, pieces and vectors of each row, as far as they are there."""
    if path.suffix != ".npz":
        name = "vector" if pooled else "vectors"
        return [(row["text"], row.get("pieces"), np.array(row[name])) for row in rows_of(path)]
    with np.load(path) as file:
        if pooled:
            return [(None, None, vector) for vector in file["vectors"]]
        parts = list(zip(file["offsets"], file["offsets"][1:]))
        return [(None, file["pieces"][a:b].tolist(), file["vectors"][a:b]) for a, b in parts]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("shape", [(6,), (2, 3)])
@pytest.mark.parametrize("pooled", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_what_is_read_back_is_what_was_written(tmp_path, monkeypatch, end, shape, pooled, dtype):
    monkeypatch.setattr(feature_files, "_GROUP_BYTES", 120)
    monkeypatch.setattr(feature_files, "_COPY_BYTES", 16)
    path, features_written = tmp_path / f"out{end}", features(20, shape, pooled, dtype)
    write_features(path, iter(features_written), pooled, ORIGIN)
    found = read(path, pooled)
    assert len(found) == 20 and [path.name for path in tmp_path.iterdir()] == [path.name]
    for (text, pieces, vectors), one in zip(found, features_written):
        assert text in (None, one.text) and pieces == (None if pooled else one.pieces)
        assert vectors.shape == one.vectors.shape and np.array_equal(vectors.astype(dtype), one.vectors)
        assert end != ".npz" or vectors.dtype == dtype
    if end == ".parquet":
        file = pyarrow.parquet.ParquetFile(path)
        assert file.metadata.num_row_groups > 1
        assert file.schema_arrow.metadata[b"bert_jax"] == ORIGIN.as_bytes
        assert ("float" if dtype == np.float32 else "halffloat") in str(file.schema_arrow.field(-1).type)


@pytest.mark.parametrize("end", [".parquet", ".jsonl"])
def test_a_pair_has_two_columns_of_text(tmp_path, end):
    path = tmp_path / f"out{end}"
    write_features(path, features(2, (3,), True, pair=True), True, ORIGIN)
    assert [(row["text"], row["text_pair"]) for row in rows_of(path)] == [("a 0", "雪"), ("a 1", "雪")]


@pytest.mark.parametrize("end", ENDS)
def test_the_same_features_are_the_same_bytes(tmp_path, end):
    for name in "ab":
        write_features(tmp_path / f"{name}{end}", features(5, (4,)), False, ORIGIN)
    assert (tmp_path / f"a{end}").read_bytes() == (tmp_path / f"b{end}").read_bytes()


@pytest.mark.parametrize("end", ENDS)
def test_the_file_is_whole_or_absent(tmp_path, end):
    def failing():
        yield from features(5, (4,))
        raise UsageError("line 6")

    path = tmp_path / f"out{end}"
    with pytest.raises(UsageError, match="line 6"):
        write_features(path, failing(), False, ORIGIN)
    with pytest.raises(UsageError, match="there is no text"):
        write_features(path, [], False, ORIGIN)
    assert not list(tmp_path.iterdir())
    path.write_text("old")
    with pytest.raises(UsageError, match="line 6"):
        write_features(path, failing(), False, ORIGIN)
    assert path.read_text() == "old" and len(list(tmp_path.iterdir())) == 1


def test_an_output_that_cannot_be_written_is_refused(tmp_path, monkeypatch):
    (tmp_path / "folder.npz").mkdir()
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    for path, words in [
        (tmp_path / "out.csv", "out.csv: features are written to .npz, .parquet, .jsonl; name it so"),
        (tmp_path / "absent" / "out.npz", "there is no folder"),
        (tmp_path / "folder.npz", "it is a folder"),
        (tmp_path / "out.parquet", r"pip install .*\[parquet\]., or name the file .npz"),
    ]:
        with pytest.raises(UsageError, match=words):
            check_output(path)
