"""The run's manifest is right at any instant, and what isn't as it was written is noticed."""

import shutil
from pathlib import Path

import pytest

import bert_jax
from bert_jax.config.model import ModelConfig
from bert_jax.config.run import RunConfig
from bert_jax.run.checkpoint_manifest import (
    agree_with_list,
    checkpoint_damage,
    complete,
    delete_checkpoint,
    lost_checkpoints,
    make_complete,
    set_aside,
    write_evaluation,
)
from bert_jax.run.results import Results
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.run_files import RunFiles
from bert_jax.run.verification import verify
from bert_jax.system import files
from bert_jax.system.errors import RunError
from bert_jax.text.vocabulary import SPECIAL_PIECES, Vocabulary
from bert_jax.text.wordpiece import WordPieceTokenizer


def checkpoint(run: RunDirectory, step: int) -> Path:
    path = run.checkpoints / f"{step:08d}"
    path.mkdir(parents=True, exist_ok=True)
    (path / "numbers").write_bytes(bytes(step))
    make_complete(path, (run.config_file, run.tokenizer_directory), step, {"loss": 1.0}, None)
    return path


def tokenizer(word: str) -> WordPieceTokenizer:
    return WordPieceTokenizer(Vocabulary((*SPECIAL_PIECES, word)))


def life(path: Path):
    """All that changes a run's files, step by step."""
    run = RunDirectory(path)
    run.open(RunConfig())
    yield run
    run.save_tokenizer(tokenizer("a"), {"made": "of a"})
    run.open(RunConfig(model=ModelConfig.tiny()))
    run.save_tokenizer(tokenizer("b"), {"made": "of b"})
    ten = checkpoint(run, 10)
    twenty = checkpoint(run, 20)
    run.open(RunConfig(model=ModelConfig.tiny(), logging={"every": 7}))
    write_evaluation(twenty, {"loss": 2.0})
    delete_checkpoint(ten)
    thirty = checkpoint(run, 30)
    set_aside(twenty, "tried")
    agree_with_list(run.checkpoints)
    run.write_results(Results(steps=30))
    delete_checkpoint(thirty)
    checkpoint(run, 30)
    run.write_results(Results(steps=30, score=0.5))


class Killed(BaseException):
    """What ends a process between two changes of the disk."""


def killed_at(number: int, path: Path, patch: pytest.MonkeyPatch) -> bool:
    """Whether a life was killed right after its change `number` of the disk, from 1."""
    changes = [0]

    def counted(change):
        def changed(*given, **named):
            found = change(*given, **named)
            changes[0] += 1
            if changes[0] == number:
                raise Killed
            return found

        return changed

    with patch.context() as context:
        for place, name in ((files.os, "replace"), (Path, "rename"), (Path, "unlink"), (shutil, "rmtree")):
            context.setattr(place, name, counted(getattr(place, name)))
        try:
            list(life(path))
        except Killed:
            return True
    return False


@pytest.mark.long
def test_a_run_killed_between_any_two_changes_has_nothing_that_is_not_as_it_was_written(tmp_path, monkeypatch, capsys):
    number = 1
    while killed_at(number, path := tmp_path / str(number), monkeypatch):
        run = RunDirectory(path)
        assert run.manifest.damage(path) is None, number
        assert lost_checkpoints(run.checkpoints) == [], number
        assert not [found for found in complete(run.checkpoints) if checkpoint_damage(found)], number
        agree_with_list(run.checkpoints)
        listed = set(run.manifest.listed(run.checkpoints))
        assert listed == {f"checkpoints/{found.name}/manifest.json" for found in complete(run.checkpoints)}
        number += 1
    assert number > 40
    run = RunDirectory(path)
    assert set(run.manifest.read().files) == set(run.manifest.built_on())
    said = capsys.readouterr().err.replace("\n", " ").split("WARNING: ")[1:]
    assert all("is damaged (tried)" in warning for warning in said)


@pytest.fixture
def run(tmp_path, capsys) -> RunDirectory:
    """One that went through all of `life`."""
    list(life(tmp_path / "run"))
    capsys.readouterr()
    return RunDirectory(tmp_path / "run")


@pytest.mark.parametrize("name", ["config.json", "tokenizer/vocab.txt", "tokenizer/tokenizer_config.json"])
def test_settings_and_tokenizer_changed_by_hand_are_refused(run, name):
    _ = RunFiles(run.path).config
    file = run.path / name
    file.write_text(file.read_text().replace("true", "false", 1).replace("[MASK]", "[mask]"))
    with pytest.raises(RunError, match=f"{name} is not as it was written; put a good copy in its place: every checkp"):
        _ = RunFiles(run.path).config
    shutil.copy(complete(run.checkpoints)[-1] / name, file)
    _ = RunFiles(run.path).config


def test_a_checkpoint_that_lost_its_manifest_is_set_aside_and_one_that_is_gone_is_said(run, capsys):
    checkpoint(run, 40), checkpoint(run, 50)
    (run.checkpoints / "00000050" / "manifest.json").unlink()
    shutil.rmtree(run.checkpoints / "00000040")
    assert [path.name for path in lost_checkpoints(run.checkpoints)] == ["00000040", "00000050"]
    agree_with_list(run.checkpoints)
    said = " ".join(capsys.readouterr().err.split())
    assert "00000050 is damaged (its manifest.json is gone); it is set aside as damaged-00000050" in said
    assert "00000040 was finished and is gone; the one before it is used" in said
    assert lost_checkpoints(run.checkpoints) == [] and (run.checkpoints / "damaged-00000050" / "numbers").exists()


def test_another_manifest_in_a_checkpoint_is_damage(run):
    forty, fifty = checkpoint(run, 40), checkpoint(run, 50)
    shutil.copy(forty / "manifest.json", fifty / "manifest.json")
    (fifty / "numbers").write_bytes(bytes(40))  # all sums are right but the run's
    assert checkpoint_damage(fifty) == "manifest.json, which is of step 40, is not as it was written"
    assert checkpoint_damage(forty) is None


def test_a_full_disk_still_lets_an_old_checkpoint_go(run, monkeypatch):
    [thirty] = complete(run.checkpoints)

    def full(path, text):
        if thirty.exists():
            raise RunError(f"no space left to write {path}")
        written(path, text)

    written = files.write_text
    monkeypatch.setattr(files, "write_text", full)
    delete_checkpoint(thirty)
    assert not thirty.exists() and lost_checkpoints(run.checkpoints) == []


def test_results_changed_by_hand_are_measured_anew(run, capsys):
    assert run.results(30).score == 0.5
    run.results_file.write_text(run.results_file.read_text().replace("0.5", "0.9"))
    assert run.results(30) is None
    run.results_file.write_text("{")
    assert run.results(30) is None
    assert capsys.readouterr().err.count("the run is measured again") == 2


@pytest.mark.parametrize(
    "damage, words",
    [
        (Path.unlink, "has no manifest.json"),
        (lambda path: path.write_text(path.read_text().replace("1", "2", 1)), "manifest.json is damaged (its checksum"),
    ],
)
def test_a_missing_or_damaged_manifest_is_said_and_written_anew(run, damage, words, capsys):
    damage(run.manifest.path)
    _ = RunFiles(run.path).config  # nothing is known of it
    RunDirectory(run.path).open(RunConfig(model=ModelConfig.tiny()))
    assert set(run.manifest.read().files) == set(run.manifest.built_on()) and run.manifest.damage(run.path) is None
    said = " ".join(capsys.readouterr().err.split())
    assert words in said and ": the run's files are taken as they are" in said


def test_a_run_may_be_named_by_a_relative_path(tiny_run, tmp_path, monkeypatch):
    shutil.copytree(tiny_run.path, tmp_path / "run")
    monkeypatch.chdir(tmp_path)
    assert not any(verdict.damage for verdict in verify(RunDirectory("run")))
    assert bert_jax.load("run").steps == (12,)
