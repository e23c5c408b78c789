"""When data are prepared anew, and when a run refuses them."""

import json
import os

import pytest
from conftest import stories
from damages import attack

from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.phase import Phase
from bert_jax.instances.preparation import prepare
from bert_jax.instances.prepared_data import PreparedData, discard
from bert_jax.pretraining import dataset
from bert_jax.pretraining.dataset import check_sources, prepare_lengths
from bert_jax.pretraining.pretrain import pretrain
from bert_jax.pretraining.vocabulary import make_tokenizer
from bert_jax.run.run_directory import RunDirectory
from bert_jax.system.errors import RunError, UsageError

TEXT = stories(60).encode()
MIDDLE = TEXT.index(b"house", len(TEXT) // 2)
EDITED = TEXT[:MIDDLE] + b"mouse" + TEXT[MIDDLE + 5 :]
"""Of the same size and with the same ends."""


@pytest.fixture
def prepared(tiny_config, tmp_path):
    """A config whose corpus is the test's own, its run with data of length 32, and the corpus."""
    path = tmp_path / "corpus.txt"
    path.write_bytes(TEXT)
    config = tiny_config.replace(data=tiny_config.data.replace(source=f"text:{path}"))
    run = RunDirectory(tmp_path / "run")
    run.path.mkdir()
    make_tokenizer(config, run)
    prepare_lengths(config, run)
    return config, run, path


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
    os.utime(path, (0, 0))
    read = []
    monkeypatch.setattr(dataset, "_text_of", lambda config: read.append(1) or before.text)
    assert prepare_lengths(config, run) == made and len(asked) == len(read) == 1


def test_text_edited_in_its_middle_is_prepared_anew(prepared, capsys):
    config, run, path = prepared
    before = PreparedData.open(run.data(32))
    path.write_bytes(EDITED)
    after = prepare_lengths(config, run)[32]
    assert "is of other settings or other text" in " ".join(capsys.readouterr().err.split())
    assert after.corpus == before.corpus and after.text != before.text and after.shards != before.shards
    assert prepare_lengths(config, run)[32] == after


def test_the_same_text_written_again_is_not_prepared_anew(prepared, capsys):
    config, run, path = prepared
    before = run.data(32) / "train-00000.array_record"
    written = before.stat().st_mtime_ns
    os.utime(path, (0, 0))
    prepare_lengths(config, run)
    assert before.stat().st_mtime_ns == written and "anew" not in capsys.readouterr().err


def test_a_run_under_way_refuses_edited_text_however_often_it_is_started(prepared, monkeypatch):
    config, run, path = prepared
    monkeypatch.setattr(RunDirectory, "under_way", True)
    for file in run.data(32).iterdir():
        file.unlink()
    path.write_bytes(EDITED)
    for _ in range(2):
        with pytest.raises(UsageError, match="gives other text than"):
            prepare_lengths(config, run)
    path.write_bytes(TEXT)
    prepare_lengths(config, run)


def test_another_length_of_edited_text_is_refused(prepared, monkeypatch):
    config, run, path = prepared
    monkeypatch.setattr(RunDirectory, "under_way", True)
    path.write_bytes(EDITED)
    config = config.replace(phases=(*config.phases, Phase(steps=2, length=16, batch_size=8)))
    for _ in range(2):
        with pytest.raises(UsageError, match="gives other text than"):
            prepare_lengths(config, run)
    path.write_bytes(TEXT)
    assert set(prepare_lengths(config, run)) == {32, 16}


def test_damaged_checksums_of_a_run_under_way_are_one_line(prepared, monkeypatch, slow):
    config, run, _ = prepared
    monkeypatch.setattr(RunDirectory, "under_way", True)
    (run.data(32) / "prepared.json").unlink()

    def prepared_again(*_):
        raise UsageError("all was read")

    monkeypatch.setattr(dataset, "prepare", prepared_again)
    attack(lambda: prepare_lengths(config, run), run.path / "data-32.json", count=3_000 if slow else 60)
    (run.path / "data-32.json").write_text("[]")
    with pytest.raises(RunError, match="data-32.json is damaged .it holds an array and should hold an object"):
        prepare_lengths(config, run)


def test_checksums_of_a_run_under_way_are_compared(prepared, monkeypatch):
    config, run, path = prepared
    record = run.path / "data-32.json"
    written = json.loads(record.read_text())
    monkeypatch.setattr(RunDirectory, "under_way", True)
    discard(run.data(32))
    assert prepare_lengths(config, run)[32].shards.keys() == written["shards"].keys()
    shards = {name: [size, crc32 + 1] for name, (size, crc32) in written["shards"].items()}
    record.write_text(json.dumps({"format": 1, "shards": shards}))
    discard(run.data(32))
    with pytest.raises(UsageError, match="gives other text than"):
        prepare_lengths(config, run)


def test_checksums_of_another_release_are_refused(prepared, monkeypatch):
    config, run, _ = prepared
    (run.path / "data-32.json").write_text('{"format": 2, "sums": []}')
    monkeypatch.setattr(RunDirectory, "under_way", True)
    discard(run.data(32))
    with pytest.raises(UsageError, match="data-32.json has format 2 .* use the release that wrote it"):
        prepare_lengths(config, run)


def test_another_releases_checksums_are_refused_while_the_data_are_there(prepared, monkeypatch):
    config, run, _ = prepared
    other = '{"format": 2, "sums": []}'
    (run.path / "data-32.json").write_text(other)
    for under_way in (True, False):
        monkeypatch.setattr(RunDirectory, "under_way", under_way)
        for refuses in (check_sources, prepare_lengths):
            with pytest.raises(UsageError, match="data-32.json has format 2 .* use the release that wrote it"):
                refuses(config, run)
    assert (run.path / "data-32.json").read_text() == other


@pytest.mark.parametrize("damaged", ["[]", '{"format": 1, "sha', '{"format": 1, "shards": {}}', None])
def test_damaged_checksums_are_written_anew_while_the_data_are_there(prepared, monkeypatch, capsys, damaged):
    config, run, _ = prepared
    monkeypatch.setattr(RunDirectory, "under_way", True)
    record = run.path / "data-32.json"
    written = record.read_text()
    if damaged is None:
        record.unlink()
    else:
        record.write_text(damaged)
    capsys.readouterr()
    prepare_lengths(config, run)
    said = " ".join(capsys.readouterr().err.split())
    assert said.count("data-32.json") == 1 and "it is written anew, from the prepared data" in said
    assert record.read_text() == written and not run.manifest.damage(record)
    prepare_lengths(config, run)
    assert not capsys.readouterr().err


def test_a_run_on_one_document_is_evaluated_on_its_end(tiny_config, tmp_path, capsys):
    (tmp_path / "one.txt").write_text(stories(60).replace("\n\n", "\n"))
    data = tiny_config.data.replace(source=f"text:{tmp_path / 'one.txt'}", held_out=0.01)
    config = tiny_config.replace(
        data=data, objective=ObjectiveConfig(pair="none"), phases=(Phase(steps=2, length=32, batch_size=8),)
    )
    results = pretrain(config, RunDirectory(tmp_path / "run"))
    assert results["held_out_sequences"] > 0 and "baseline" in results
    assert "no held-out documents" not in capsys.readouterr().err
