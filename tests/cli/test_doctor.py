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
