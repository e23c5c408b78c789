import json

import pytest

from bert_jax.cli.main import run


@pytest.mark.long
def test_the_doctor_prints_tables_or_one_object(corpus, config_file, capsys, monkeypatch):
    monkeypatch.setattr("bert_jax.training.estimate._PRODUCT_SIZE", 64)
    assert run(["doctor", str(corpus), "--config", str(config_file)]) == 0
    shown = capsys.readouterr().out
    for heading in ("Languages", "Sequences of the whole text", "Vocabularies", "Its time", "What to change"):
        assert heading in shown
    assert run(["doctor", str(corpus), "--config", str(config_file), "--language", "de", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["text"]["documents"] == 120 and found["languages"][0]["name"] == "en"
    assert found["changes"][0]["change"] == "--data.language en"
    assert [road["rank"] for road in found["roads"]] == [1] and found["roads"][0]["estimate"]["hours"] > 0


@pytest.mark.long
def test_the_doctor_names_roads_for_models_in_an_order(corpus, config_file, tiny_run, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("bert_jax.training.estimate._PRODUCT_SIZE", 64)
    (tmp_path / "tags.conllu").touch()
    words = ["doctor", str(corpus), "--config", str(config_file), "--models", str(tiny_run.path)]
    assert run([*words, "--tags", str(tmp_path / "tags.conllu")]) == 0
    lines = capsys.readouterr().out.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("Roads to a model for this text"))
    assert lines[start + 1].startswith(f"1. fine-tune {tiny_run.path} as it is, without adapting it: ")
    assert lines[start + 2] == "   no pretraining"
    assert lines[start + 3].startswith(f"   bert-jax finetune tags --init {tiny_run.path} --workdir RUN")
    assert lines[start + 6].startswith(f"   bert-jax pretrain adapt --init {tiny_run.path} --workdir RUN")
    assert [line[:2] for line in lines[start + 1 : start + 16 : 3]] == ["1.", "2.", "3.", "4.", "5."]
    assert lines[start + 16] == "What to change"


@pytest.mark.long
def test_the_doctor_takes_several_sources_also_from_a_file(corpus, config_file, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr("bert_jax.training.estimate._PRODUCT_SIZE", 64)
    (tmp_path / "other.txt").write_bytes(corpus.read_bytes()[:20_000])
    (tmp_path / "sources.toml").write_text(
        "".join(f"[[source]]\nsource = {str(path)!r}\n" for path in (corpus, tmp_path / "other.txt"))
    )
    assert run(["doctor", f"@{tmp_path / 'sources.toml'}", "--config", str(config_file), "--smoothing", "0.5"]) == 0
    shown = capsys.readouterr().out
    assert "The sources, estimated from samples" in shown and "seen" in shown
    words = [str(corpus), str(tmp_path / "other.txt"), "--config", str(config_file), "--weights", "1", "1", "--json"]
    assert run(["doctor", *words]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [each["share"] for each in found["shares"]] == [0.5, 0.5] and len(found["sources"]) == 2
    assert run(["doctor", str(corpus), "--weights", "1", "2"]) == 2
    assert "--data.weights has 2 numbers for 1 source" in capsys.readouterr().err


def test_prepare_tells_its_time_and_writes_nothing(config_file, tmp_path, capsys):
    assert run(["prepare", str(config_file), "--workdir", str(tmp_path / "run"), "--dry-run"]) == 0
    assert "100 workers" in capsys.readouterr().out and not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "words, expected",
    [
        (["missing.txt"], "no file matches 'missing.txt'"),
        (["empty.txt"], "--data.source='empty.txt' holds no text; give another"),
        (["."], "'.' is a folder; name its files by a pattern like *.txt"),
        (["binary.bin"], "is NUL, which text doesn't have"),
        (["one.txt"], "holds 1 document for training and next sentence prediction needs two"),
        (["one.txt", "--config", "nothing"], "no config file at nothing"),
        (["one.txt", "--models", "absent/model"], "there is no folder"),
        (["one.txt", "--minutes", "0"], "--minutes 0: expected a finite number above 0"),
        (["one.txt", "--tags", "absent"], "--tags=absent: there is no such file"),
        (["one.txt", "--language", "nolanguage"], "--data.language: nolanguage is no language"),
    ],
)
def test_bad_input_is_told_in_one_line(words, expected, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty.txt").touch()
    (tmp_path / "one.txt").write_text("one line\n")
    (tmp_path / "binary.bin").write_bytes(b"\x89PNG\n" + bytes(range(256)) * 9)
    assert run(["doctor", *words]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert error.startswith("bert-jax: ") and expected in error
