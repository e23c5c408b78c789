"""A prepared set, or one being prepared, of which a file was changed: the change is found and never used."""

import json
import shutil

import numpy as np
import pytest
from damages import attack
from prepared_sets import build, files, prepare_chunks, read_all

from bert_jax.instances import chunk_worker, preparation
from bert_jax.instances.chunk_worker import PendingSet
from bert_jax.instances.chunks import DOCUMENTS, NUMBERS, FinishedChunk, chunk_file, cut_chunks, write_numbers
from bert_jax.instances.prepared_data import SMALL_FILES, PreparedData
from bert_jax.instances.statistics import Statistics
from bert_jax.records.corpus import open_corpus
from bert_jax.system.errors import RunError
from bert_jax.system.files import FileSum

CHUNK_FILES = ("json", "safetensors")


def use(directory):
    """Reads all that training and evaluation read."""
    prepared = PreparedData.open(directory)
    assert prepared and prepared.piece_counts.sum() == prepared.train.tokens and prepared.piece_counts.shape == (150,)
    for split in ("train", "held_out"):
        read_all(directory, split)


def test_every_file_of_a_set_is_covered(whole):
    prepared = PreparedData.open(whole)
    names = {path.name for path in whole.iterdir()}
    assert names == {*prepared.files, "prepared.json"} and prepared.damaged_file() is None


@pytest.mark.parametrize("name", SMALL_FILES)
def test_a_small_file_of_the_same_size_and_other_content_is_found_when_the_set_is_opened(whole, tmp_path, name):
    shutil.copytree(whole, tmp_path / "set")
    path = tmp_path / "set" / name
    content = bytearray(path.read_bytes())
    content[-3] ^= 1
    path.write_bytes(content)
    assert PreparedData.unchecked(tmp_path / "set").damaged_file() == name
    with pytest.raises(RunError, match=f"{name} is damaged .its checksum is another.*delete .* to prepare it anew"):
        PreparedData.open(tmp_path / "set")


@pytest.mark.parametrize("name", ["prepared.json", *SMALL_FILES])
def test_any_damage_to_a_set_is_one_line_or_changes_nothing(whole, tmp_path, name, slow):
    shutil.copytree(whole, tmp_path / "set")
    attack(lambda: use(tmp_path / "set"), tmp_path / "set" / name, count=3_000 if slow else 60)


def changed(content):
    """Another content of the same size."""
    return content[:-4] + bytes([content[-4] ^ 1]) + content[-3:]


@pytest.mark.parametrize("name", [f"chunks/00001.{kind}" for kind in CHUNK_FILES] + ["train-00001.array_record"])
@pytest.mark.parametrize("damage", [changed, lambda _: b""])
def test_a_chunk_of_which_a_file_was_changed_between_two_starts_is_made_anew(
    stopped, recipe, whole, name, damage, capsys
):
    path = stopped / name
    path.write_bytes(damage(path.read_bytes()))
    build(recipe, stopped)
    assert files(stopped) == files(whole)
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("this part of the data is prepared anew") == 1 and path.name in said.replace(" ", "")


def test_a_file_that_is_changed_under_way_stops_the_preparation_and_the_next_makes_it_anew(
    stopped, recipe, whole, monkeypatch
):
    real = preparation.separate_held_out

    def after_a_change(*arguments, **named):
        path = stopped / "chunks" / "00000.safetensors"
        path.write_bytes(changed(path.read_bytes()))
        return real(*arguments, **named)

    with monkeypatch.context() as context:
        context.setattr(preparation, "separate_held_out", after_a_change)
        with pytest.raises(
            RunError, match="00000.safetensors can't be used .* same command again, which writes it again"
        ):
            build(recipe, stopped)
    build(recipe, stopped)
    assert files(stopped) == files(whole)


@pytest.mark.parametrize("kind", CHUNK_FILES)
def test_any_damage_to_a_chunk_has_it_made_anew(stopped, recipe, kind, slow, monkeypatch):
    chunk = next(cut_chunks(open_corpus(recipe.data).portions(), 20_000))
    shape = json.loads((stopped / "chunks" / "00000.json").read_text())["fingerprint"]
    targets = [PendingSet(recipe, stopped, shape)]
    (expected,) = chunk_worker.prepare_chunk(chunk, targets)
    monkeypatch.setattr(chunk_worker, "prepare_chunk", lambda *_: [expected])

    def take_up():
        ((record, remark),) = chunk_worker.prepare_unless_finished(chunk, targets)
        assert record.as_sealed() == expected.as_sealed() and (remark is None or "\n" not in remark)

    attack(take_up, stopped / "chunks" / f"00000.{kind}", count=3_000 if slow else 60)


@pytest.mark.parametrize("text", ['{"a": 1}', "[1]", "[" * 100_000, " ", '[["\\ud800"]]', "9" * 5_000, "null", '["a"]'])
def test_held_out_documents_that_are_none_are_damage_even_if_the_record_seals_them(text, tmp_path):
    path = chunk_file(tmp_path, 0, NUMBERS)
    path.parent.mkdir()
    write_numbers(path, {DOCUMENTS: np.frombuffer(text.encode(), np.uint8)})
    record = FinishedChunk(
        directory=tmp_path,
        index=0,
        fingerprint="",
        text_crc32=0,
        source=0,
        statistics=Statistics(),
        held_out=1,
        files={"chunks/00000.safetensors": FileSum.of(path)},
    )
    with pytest.raises(RunError, match="is damaged") as refusal:
        record.held_out_documents()
    assert "\n" not in str(refusal.value)


def test_text_changed_in_its_middle_between_two_starts_is_prepared_from_what_it_is_now(recipe, tmp_path):
    """The corpus' size and both its ends are the same."""
    corpus = tmp_path / "corpus.txt"
    good = open(recipe.data.source[0].removeprefix("text:"), "rb").read()
    corpus.write_bytes(good)
    recipe = recipe._replace(data=recipe.data.replace(source=f"text:{corpus}"))
    prepare_chunks(recipe, tmp_path / "set")
    middle = good.index(b"house", len(good) // 2)
    corpus.write_bytes(good[:middle] + b"mouse" + good[middle + 5 :])
    changed_set, whole = build(recipe, tmp_path / "set"), build(recipe, tmp_path / "whole")
    assert changed_set.as_sealed() == whole.as_sealed()
    assert files(tmp_path / "set") == files(tmp_path / "whole")
    corpus.write_bytes(good)
    assert build(recipe, tmp_path / "good").corpus != whole.corpus
    assert build(recipe, tmp_path / "good").text != whole.text
