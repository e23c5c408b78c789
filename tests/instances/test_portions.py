"""Preparation by portions of files, which Spark's workers prepare."""

import contextlib
import gzip
import json
import os
import pickle
import shutil
import signal
from pathlib import Path

import pytest
from conftest import stories
from extras import skip_without
from prepared_sets import files

from bert_jax.config.data import DataConfig
from bert_jax.config.operation import PreparationConfig
from bert_jax.instances import portions, preparation
from bert_jax.instances.preparation import prepare
from bert_jax.instances.prepared_data import PreparedData, Recipe, publish_prepared
from bert_jax.records import engine
from bert_jax.records.corpus import open_corpus
from bert_jax.records.curation import curated
from bert_jax.system import errors, spark
from bert_jax.system.bucket import objects, place_of, upload, upload_folder
from bert_jax.system.errors import RunError, UsageError

needs_java = pytest.mark.skipif(not shutil.which("java"), reason="Spark needs Java")


@pytest.fixture
def recipe(tokenizer_directory, tmp_path):
    """Of eight small files, two of them compressed, and one of which each document's end is held out."""
    for number in range(8):
        text = stories(6, first=100 * number).encode()
        path = tmp_path / f"text-{number}.txt{'.gz' * (number > 5)}"
        path.write_bytes(gzip.compress(text, mtime=0) if number > 5 else text + b"\xff\n")
    lines = (json.dumps({"text": text}) for text in [*stories(3, first=2000).split("\n\n"), None])
    (tmp_path / "few.jsonl").write_text("\n".join(lines))
    sources = (f"text:{tmp_path}/text-*", f"jsonl:{tmp_path}/few.jsonl#text")
    data = DataConfig(source=sources, language=("en", "en"), held_out=0.2, chunk_megabytes=0.005)
    return Recipe(data, 32, 0, tokenizer_directory)


def built(recipe, directory, engine, drops=None, **settings) -> dict[str, bytes]:
    corpus = open_corpus(recipe.data)
    corpus.drops = drops
    (data,) = prepare(corpus, {directory: recipe}, PreparationConfig(engine=engine, **settings))
    assert data.as_sealed() == PreparedData.open(directory).as_sealed()
    return files(directory)


class Elsewhere(spark.Spark):
    """In place of Spark: computes each item as another process would, from a copy of it."""

    def map(self, function, items, finished):
        return [function(pickle.loads(pickle.dumps(item))) for item in items]


@pytest.fixture
def elsewhere(monkeypatch):
    monkeypatch.setattr(engine, "connected", lambda *_: contextlib.nullcontext(Elsewhere(None)))


@pytest.mark.long
def test_portions_give_the_shards_of_one_reader_without_what_is_dropped(
    recipe, tmp_path, elsewhere, capsys, monkeypatch
):
    path = tmp_path / "text-3.txt"
    path.write_bytes(path.read_bytes() + b"\n" + stories(3, first=102).encode())  # of text-1.txt
    recipe = recipe._replace(data=recipe.data.replace(deduplicate="exact"))
    directory = tmp_path / "curation"
    drops = curated(open_corpus(recipe.data), recipe.data, PreparationConfig(processes=1), directory)
    expected = built(recipe, tmp_path / "local", "local", drops, processes=1)
    assert built(recipe, tmp_path / "spark", "spark", drops) == expected
    dropped = (directory / "dropped.jsonl").read_text().splitlines()
    assert PreparedData.open(tmp_path / "spark").train.repairs["documents dropped"] == len(dropped) > 3
    monkeypatch.setattr(engine, "_MOST_READERS_FEED", 1)
    monkeypatch.setattr(preparation, "_prepared_by_chunks", None)  # by which one process reads
    assert built(recipe, tmp_path / "readers", "local", drops, processes=2) == expected
    assert sum(name.startswith("train-") for name in expected) > 4
    assert capsys.readouterr().err.count("few.jsonl#text: too few documents to hold some out") == 3


def test_chunks_depend_on_no_other_portion(recipe, tmp_path):
    """A file's chunks are the same whatever the files of the portions before it hold."""
    before = [chunk.documents for chunk in cut(recipe)]
    (first, *_), *_ = [list(part.source.sizes) for part in open_corpus(recipe.data).parts[0].portions()]
    first.write_bytes(first.read_bytes().upper())  # of the same size, by which files are grouped
    after = [chunk.documents for chunk in cut(recipe)]
    assert after[0] != before[0] and after[-3:] == before[-3:]


def cut(recipe):
    return portions.cut_chunks(open_corpus(recipe.data).portions(), recipe.data.chunk_bytes)


def test_undecodable_lines_are_judged_in_the_whole_source(recipe, tmp_path, elsewhere, monkeypatch):
    """As where one machine reads them: one bad file among many is read, and many bad ones are refused."""
    bad = b"\xff bad line\n" * 12
    (tmp_path / "text-7.txt.gz").write_bytes(gzip.compress(stories(6, first=700).encode() + bad, mtime=0))
    assert built(recipe, tmp_path / "spark", "spark") == built(recipe, tmp_path / "local", "local", processes=1)
    for number in range(6):
        (tmp_path / f"text-{number}.txt").write_bytes(stories(6).encode() + bad)
    with pytest.raises(UsageError, match=r"at the end of the source: \d+ of"):
        built(recipe, tmp_path / "worse", "spark")


def test_a_portion_has_its_own_files_only_and_a_small_rest_joins_the_last(recipe, tmp_path):
    before = [list(portion.source.sizes) for portion in open_corpus(recipe.data).parts[0].portions()]
    assert sum(before, []) == list(open_corpus(recipe.data).parts[0].source.sizes) and len(before) == 3
    (tmp_path / "text-9.txt").write_text("Two words.\n")
    *same, (*_, last) = [list(portion.source.sizes) for portion in open_corpus(recipe.data).parts[0].portions()]
    assert same == before[:-1] and last == tmp_path / "text-9.txt"


def test_finished_chunks_are_used_again_and_a_changed_file_is_refused(recipe, tmp_path, elsewhere, monkeypatch):
    prepare_portion = portions.prepare_portion

    def interrupted(portion, targets, ends_held_out):
        if portion.first > 2:
            raise KeyboardInterrupt
        return prepare_portion(portion, targets, ends_held_out)

    monkeypatch.setattr(portions, "prepare_portion", interrupted)
    with pytest.raises(KeyboardInterrupt):
        built(recipe, tmp_path / "out", "spark")
    first = tmp_path / "out" / "train-00000.array_record"
    written = first.stat().st_mtime_ns

    def edited(portion, targets, ends_held_out):
        (tmp_path / "text-3.txt").write_text(stories(6, first=9000))
        return prepare_portion(portion, targets, ends_held_out)

    monkeypatch.setattr(portions, "prepare_portion", edited)
    with pytest.raises(UsageError, match=r"text-3.txt.* changed while it was being prepared; let no program write it"):
        built(recipe, tmp_path / "out", "spark")
    assert first.stat().st_mtime_ns == written


def test_what_spark_lacks_or_can_not_read_is_told_before_anything_is_prepared(recipe, monkeypatch):
    skip_without("pyspark")
    wanted = PreparationConfig(engine="spark")
    monkeypatch.setattr(errors, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"needs PySpark, which isn't installed; pip install .*\[spark\]"):
        portions.check_engine(recipe.data, wanted)
    monkeypatch.undo()
    with pytest.raises(UsageError, match="--data.source='python-docs' doesn't consist of files; give text:, jsonl: or"):
        monkeypatch.setenv("JAVA_HOME", "/java")
        portions.check_engine(DataConfig(), wanted)
    monkeypatch.delenv("JAVA_HOME")
    monkeypatch.setenv("PATH", "")
    with pytest.raises(UsageError, match="needs Java 17 or newer, and there is no java"):
        portions.check_engine(recipe.data, wanted)
    portions.check_engine(DataConfig(), PreparationConfig())


def own_children(name: str) -> list[int]:
    """The numbers of this process's children of this name."""
    numbers = [number for path in Path("/proc/self/task").glob("*/children") for number in path.read_text().split()]
    return [int(number) for number in numbers if Path("/proc", number, "comm").read_text() == f"{name}\n"]


def check_equal_in_bucket(recipe, folder, tmp_path, **settings):
    """Text, tokenizer and data set lie in `folder`, and the set is that of one reader."""
    folder = place_of(folder)
    upload_folder(recipe.tokenizer_directory, folder / "tokenizer")
    for path in (*tmp_path.glob("text-*"), tmp_path / "few.jsonl"):
        upload(path, folder / path.name)
    sources = (f"text:{folder}/text-*", f"jsonl:{folder}/few.jsonl#text")
    recipe = recipe._replace(data=recipe.data.replace(source=sources), tokenizer_directory=folder / "tokenizer")
    expected = built(recipe, tmp_path / "local", "local", processes=1)
    settings = PreparationConfig(engine="spark", **settings)
    (prepared,) = prepare(open_corpus(recipe.data), {folder / "set": recipe}, settings)
    assert files(prepared.directory) == expected
    publish_prepared(folder / "set")
    assert objects(folder / "set").keys() == expected.keys()  # without chunks


def test_machines_that_share_no_disk_read_and_write_in_a_bucket(recipe, bucket, tmp_path, monkeypatch):
    class OtherMachine(Elsewhere):
        def map(self, function, items, finished):
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("XDG_CACHE_HOME", str(tmp_path / "other"))
                return super().map(function, items, finished)

    monkeypatch.setattr(engine, "connected", lambda *_: contextlib.nullcontext(OtherMachine(None)))
    check_equal_in_bucket(recipe, bucket, tmp_path)
    assert not [*(tmp_path / "other").rglob("*.array_record")]


@needs_java
@pytest.mark.long
def test_spark_reads_and_writes_in_s3(recipe, s3, tmp_path):
    other = f"spark.executorEnv.XDG_CACHE_HOME={tmp_path}/other"
    check_equal_in_bucket(recipe, s3, tmp_path, spark=(other,), processes=2)
    assert [*(tmp_path / "other").rglob("tokenizer")] and not own_children("java")


@needs_java
@pytest.mark.long
def test_spark_goes_on_without_a_worker_that_dies_and_tells_what_went_wrong(tmp_path, capsys):
    handler = signal.getsignal(signal.SIGINT)

    def dies_once(number: int) -> int:
        import os
        import pathlib
        import signal

        flag = pathlib.Path(tmp_path, "died")
        if number == 3 and not flag.exists():
            flag.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return number * number

    def fails(number: int) -> int:
        from bert_jax.system.errors import UsageError

        raise UsageError(f"{number} is no file")

    options = "spark.master=local[2,4]", "spark.executor.memroy=1g"  # a task is tried four times
    with spark.connected(options, None) as cluster:
        said = capsys.readouterr().err
        assert "Spark doesn't know the option spark.executor.memroy yet; did you mean spark.exec" in said
        assert cluster.map(dies_once, range(6), lambda finished: None) == [0, 1, 4, 9, 16, 25]
        assert (tmp_path / "died").exists() and cluster.map(fails, [], print) == []
        with pytest.raises(UsageError, match="^0 is no file$"):
            cluster.map(fails, range(2), lambda finished: None)
        children = own_children("java")
        assert len(children) == 1 and signal.getsignal(signal.SIGINT) == handler
        os.kill(children[0], signal.SIGKILL)
        with pytest.raises(RunError, match="^Spark failed .*; give the same command again: finished chunks are kept$"):
            cluster.map(fails, range(2), lambda finished: None)
