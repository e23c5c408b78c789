"""When data are prepared anew, and when a run refuses them."""

import hashlib
import json
import os
import shutil

import pytest
from conftest import stories

from bert_jax.config.training import Phase
from bert_jax.instances import prepared_data
from bert_jax.instances.preparation import prepare
from bert_jax.instances.prepared_data import PreparedData, discard
from bert_jax.pretraining import dataset
from bert_jax.pretraining.dataset import check_sources, prepare_data, prepare_lengths
from bert_jax.pretraining.pretrain import pretrain
from bert_jax.pretraining.vocabulary import make_tokenizer
from bert_jax.run.opened_models import OpenedModels
from bert_jax.run.recorded_config import write_config
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.verification import Verdict, verify
from bert_jax.system.errors import RunError, UsageError
from bert_jax.system.files import as_json
from bert_jax.text.tokenizer import load_tokenizer

TEXT = stories(60).encode()
MIDDLE = TEXT.index(b"house", len(TEXT) // 2)
EDITED = TEXT[:MIDDLE] + b"mouse" + TEXT[MIDDLE + 5 :]
"""Of the same size and with the same ends."""
FOLDERS = "data/length-32", "data/length-32/chunks", "tokenizer", "checkpoints", "checkpoints/00000001", "tensorboard"
"""Those of a run, beside `data` itself (test_python_training.py)."""


@pytest.fixture
def corpus_of_its_own(tiny_config, tmp_path):
    """A config whose corpus is the test's own, and the corpus."""
    path = tmp_path / "corpus.txt"
    path.write_bytes(TEXT)
    return tiny_config.change(data={"source": f"text:{path}"}), path


@pytest.fixture
def prepared(corpus_of_its_own, tmp_path):
    """That config, its run with data of length 32, and the corpus."""
    config, path = corpus_of_its_own
    run = RunDirectory(tmp_path / "run")
    run.path.mkdir()
    make_tokenizer(config, run)
    prepare_lengths(config, run)
    return config, run, path


def as_of_an_earlier_release(run, *lengths):
    """Gives the records of data sets the fields that earlier releases wrote: hashes of both ends and of times."""
    for length in lengths:
        path = run.data(length) / "prepared.json"
        value = json.loads(path.read_text()) | {"corpus": "0123456789abcdef", "revision": "fedcba9876543210"}
        del value["sum"]
        value["sum"] = hashlib.blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=8).hexdigest()
        path.write_text(as_json(value))


def test_other_hosts_than_the_first_take_the_data_that_are_there(prepared, monkeypatch):
    """Their own copy of the text may be another one."""
    config, run, path = prepared
    before = PreparedData.open(run.data(32))
    path.write_bytes(EDITED)
    monkeypatch.setattr(dataset, "is_first", lambda: False)
    assert prepare_lengths(config, run) == {32: before} == {32: PreparedData.open(run.data(32))}
    with pytest.raises(UsageError, match="has no prepared data of length 16"):
        prepare_lengths(config.replace(phases=(Phase(steps=2, length=16, batch_size=8),)), run)


def test_a_length_that_is_there_stays_and_the_others_are_prepared_together(prepared, monkeypatch):
    config, run, path = prepared
    asked = []

    def noted(corpus, recipes, processes):
        asked.append([recipe.length for recipe in recipes.values()])
        return prepare(corpus, recipes, processes)

    monkeypatch.setattr(dataset, "prepare", noted)
    config = config.replace(phases=[Phase(steps=2, length=length, batch_size=8) for length in (24, 32, 16, 24)])
    before = PreparedData.open(run.data(32))
    made = prepare_lengths(config, run)
    assert asked == [[24, 16]] and list(made) == [24, 32, 16] and made[32] == before
    assert made == {length: PreparedData.open(run.data(length)) for length in made}
    read = []
    monkeypatch.setattr(dataset, "_text_of", lambda *_: read.append(1) or before.text)
    os.utime(path, (0, 0))
    assert prepare_lengths(config, run) == made and len(asked) == 1 and not read
    as_of_an_earlier_release(run, *made)
    for _ in range(2):
        assert prepare_lengths(config, run) == made and len(asked) == len(read) == 1


def test_the_copy_of_a_buckets_data_set_is_read_and_not_written(prepared, tmp_path, monkeypatch):
    config, run, _ = prepared
    as_of_an_earlier_release(run, 32)
    copy = shutil.copytree(run.data(32), tmp_path / "copy")
    written = (copy / "prepared.json").read_bytes()
    monkeypatch.setattr(prepared_data, "fetched", lambda place: copy if place == run.data(32) else place)
    assert prepare_lengths(config, run)[32].directory == copy
    assert (copy / "prepared.json").read_bytes() == written


def test_what_the_text_is_taken_for_is_kept_and_not_shown_again_once_it_is_prepared(tiny_config, tmp_path, capsys):
    run, (source,) = RunDirectory(tmp_path / "run"), tiny_config.data.source
    inputs = check_sources(tiny_config, run, OpenedModels())
    run.open(tiny_config)
    prepare_data(tiny_config, run, inputs)
    readings = {reading.subject: dict(reading.rows()) for reading in run.readings()}
    assert list(readings) == [f"corpus {source}", "corpus in pieces of the vocabulary"]
    assert readings[f"corpus {source}"]["documents"] == "120"
    assert readings["corpus in pieces of the vocabulary"]["unknown"] == "0.00% of the characters, 0.00% of the pieces"
    assert f"Read corpus {source}:" in " ".join(capsys.readouterr().err.split())
    assert not check_sources(tiny_config, run, OpenedModels()).readings and "Read corpus" not in capsys.readouterr().err


def test_vocabulary_and_sequences_are_those_of_the_text_without_copies(prepared, tmp_path):
    config, run, path = prepared
    path.write_bytes(TEXT + b"\n" + stories(9, first=20).encode())
    curated = config.replace(data=config.data.replace(deduplicate="near"))
    second = RunDirectory(tmp_path / "second")
    second.path.mkdir()
    for _ in range(2):
        assert (
            make_tokenizer(curated, second).vocabulary.pieces
            == load_tokenizer(run.tokenizer_directory).vocabulary.pieces
        )
        data = prepare_lengths(curated, second)[32]
        assert data.shards == PreparedData.open(run.data(32)).shards
    written = (second.curation / "curation.json").stat().st_mtime_ns
    os.utime(path, (0, 0))
    as_of_an_earlier_release(second, 32)
    assert prepare_lengths(curated, second)[32].shards == data.shards  # compared with the text that is left
    assert (second.curation / "curation.json").stat().st_mtime_ns == written
    assert Verdict(second.curation, None) in verify(second)
    (second.curation / "lines.npy").unlink()
    assert Verdict(second.curation, "lines.npy is not as it was written") in verify(second)
    assert prepare_lengths(config, second)[32].train.documents > data.train.documents
    assert not second.curation.exists()


def test_text_edited_in_its_middle_is_prepared_anew_and_the_same_text_is_not(prepared, capsys):
    config, run, path = prepared
    before, shard = PreparedData.open(run.data(32)), run.data(32) / "train-00000.array_record"
    written = shard.stat().st_mtime_ns
    os.utime(path, (0, 0))
    prepare_lengths(config, run)
    assert shard.stat().st_mtime_ns == written and "anew" not in capsys.readouterr().err
    times = path.stat()
    path.write_bytes(EDITED)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    after = prepare_lengths(config, run)[32]
    assert "was prepared from other text or with other settings" in " ".join(capsys.readouterr().err.split())
    assert after.corpus != before.corpus and after.text != before.text and after.shards != before.shards
    assert prepare_lengths(config, run)[32] == after


@pytest.mark.parametrize("lost", [True, False], ids=["its data are lost", "another length"])
def test_a_run_under_way_refuses_edited_text_however_often_it_is_started(prepared, monkeypatch, lost):
    config, run, path = prepared
    monkeypatch.setattr(RunDirectory, "under_way", True)
    if lost:
        for file in run.data(32).iterdir():
            file.unlink()
    else:
        config = config.replace(phases=(*config.phases, Phase(steps=2, length=16, batch_size=8)))
    path.write_bytes(EDITED)
    for _ in range(2):
        with pytest.raises(UsageError, match="gives other text than"):
            prepare_lengths(config, run)
    path.write_bytes(TEXT)
    if not lost:
        as_of_an_earlier_release(run, 32)
    assert set(prepare_lengths(config, run)) == {phase.length for phase in config.phases}


def test_data_prepared_anew_for_a_run_under_way_are_compared_with_what_it_began_with(prepared, monkeypatch):
    config, run, _ = prepared
    monkeypatch.setattr(RunDirectory, "under_way", True)
    before = PreparedData.open(run.data(32)).shards
    discard(run.data(32))
    assert prepare_lengths(config, run)[32].shards == before
    run.manifest.note_data(32, "that of others")
    with pytest.raises(RunError, match="length-32 is not as it was written; delete it"):
        prepare_lengths(config, run)
    discard(run.data(32))
    with pytest.raises(UsageError, match="gives other text than"):
        prepare_lengths(config, run)


@pytest.mark.parametrize("damaged", ["[]", None])
def test_a_run_that_lost_its_manifest_goes_on_with_its_data_and_takes_no_others(prepared, monkeypatch, damaged):
    config, run, _ = prepared
    monkeypatch.setattr(RunDirectory, "newest_step", 1)

    def lose_manifest():
        if damaged is None:
            run.manifest.path.unlink()
        else:
            run.manifest.path.write_text(damaged)

    lose_manifest()
    data = prepare_lengths(config, run)[32]
    assert run.manifest.read().data == {"32": data.shards_hash}
    lose_manifest()
    discard(run.data(32))
    with pytest.raises(RunError, match="manifest.json lacks the checksum of the data of length 32; without it nobody"):
        prepare_lengths(config, run)


def test_an_upload_that_was_cut_off_is_done_again_and_nothing_is_prepared_anew(
    corpus_of_its_own, bucket, bucket_server, tmp_path, monkeypatch
):
    config, path = corpus_of_its_own
    run, prepared = RunDirectory(bucket), []
    make_tokenizer(config, run)
    monkeypatch.setattr(dataset, "prepare", lambda *given: prepared.append(1) or prepare(*given))
    for _ in range(2):  # the second process is cut off, too
        with monkeypatch.context() as cut_off, pytest.raises(ZeroDivisionError):
            cut_off.setattr(dataset, "publish_prepared", lambda directory: 1 / 0)
            prepare_lengths(config, run)
    assert len(prepared) == 1 and not PreparedData.open(run.data(32))
    data = prepare_lengths(config, run)[32]
    assert len(prepared) == 1 and data.shards == PreparedData.open(run.data(32)).shards and not data.damaged_file()
    discard(run.data(32))
    path.write_bytes(EDITED)  # the copy is of other text
    assert prepare_lengths(config, run)[32].shards != data.shards and len(prepared) == 2


@pytest.mark.parametrize("name", FOLDERS)
def test_nothing_is_written_through_a_link(tiny_config, tmp_path, name):
    file = tmp_path / "elsewhere" / "train-00000.array_record"
    file.parent.mkdir()
    file.write_text("another's")
    link = tmp_path / "run" / name
    link.parent.mkdir(parents=True)
    link.symlink_to(file.parent)
    write_config(tmp_path / "run" / "config.json", tiny_config)
    with pytest.raises(UsageError, match="is a link, and files would be written to"):
        pretrain(tiny_config, RunDirectory(tmp_path / "run"))
    assert [*file.parent.iterdir()] == [file] and file.read_text() == "another's"


def test_a_run_goes_on_without_its_lexicon_and_not_with_another_one(prepared, tmp_path, monkeypatch):
    config, run, _ = prepared
    names = tmp_path / "names.txt"
    names.write_text("the old\na small\n")
    config = config.replace(data=config.data.replace(phrases=str(names)))
    before = prepare_lengths(config, run)
    names.unlink()
    with pytest.raises(UsageError, match="names.txt can't be read"):
        prepare_lengths(config, run)
    monkeypatch.setattr(RunDirectory, "under_way", True)
    assert prepare_lengths(config, run) == before
    names.write_text("the old\n")
    with pytest.raises(UsageError, match="was prepared from other settings"):
        prepare_lengths(config, run)


@pytest.mark.parametrize("language, word, remarks", [("mt", "ġie", 1), ("en", "café", 0)])
def test_letters_that_the_vocabulary_will_drop_are_remarked_on_where_the_text_is_read(
    tiny_config, tmp_path, language, word, remarks
):
    count = -1 if remarks else 4
    (tmp_path / "a.txt").write_text(stories(100).replace("the", word, count))
    config = tiny_config.of_source(f"text:{tmp_path / 'a.txt'}", language)
    [reading] = check_sources(config, RunDirectory(tmp_path / "run"), OpenedModels()).readings
    found = [remark for remark in reading.remarks if "lose letters or accents" in remark]
    assert len(found) == remarks and all("ġie → gie" in remark for remark in found)
