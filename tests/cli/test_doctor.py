import json

import pytest


@pytest.fixture
def doctor(corpus, config_file, done):
    """What the doctor prints of the corpus and further sources."""
    return lambda *words: done("doctor", corpus, *words, "--config", config_file).out


@pytest.mark.long
def test_the_doctor_prints_one_object(doctor):
    found = json.loads(doctor("--language", "de", "--json"))
    assert found["text"]["documents"] == 120 and found["languages"][0]["name"] == "en"
    assert found["changes"][0]["change"] == "--data.language en"
    assert [each["rank"] for each in found["approaches"]] == [1] and found["approaches"][0]["estimate"]["hours"] > 0


@pytest.mark.long
def test_the_doctor_takes_sources_from_a_file_and_orders_approaches_with_models(doctor, corpus, tiny_run, tmp_path):
    (tmp_path / "tags.conllu").write_text("1\thouse\thouse\tNOUN\t_\t_\t0\troot\t_\t_\n")
    (tmp_path / "other.txt").write_bytes(corpus.read_bytes()[:20_000])
    (tmp_path / "sources.toml").write_text(f"[[source]]\nsource = {str(tmp_path / 'other.txt')!r}\n")
    further = f"@{tmp_path / 'sources.toml'}", "--smoothing", "0.5"
    shown = doctor(*further, "--models", tiny_run.path, "--tags", tmp_path / "tags.conllu")
    assert "The sources, estimated from samples" in shown and "seen" in shown
    lines = shown.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("Approaches for this text"))
    first, second, _, _, fifth, end = (start + 1 + 4 * number for number in range(6))
    assert lines[first] == f"1. fine-tune {tiny_run.path} as it is, without adapting it"
    assert "pieces a word" in lines[first + 1] and lines[first + 2] == "   no pretraining"
    assert lines[first + 3].startswith(f"   bert-jax finetune tags --init {tiny_run.path} --workdir RUN")
    assert lines[second + 3].startswith(f"   bert-jax pretrain adapt --init {tiny_run.path} --workdir RUN")
    assert lines[fifth].startswith("5. from scratch") and lines[end] == "What the models know of the text"


def test_a_treebank_is_read_before_the_text(corpus, config_file, refused, tmp_path):
    (tmp_path / "notes.md").write_text("some notes")
    (tmp_path / "empty.conllu").touch()
    for file, words in {
        "notes.md": "notes.md: expected a treebank, a file named .conllu",
        "empty.conllu": "has no word with a part of speech; give a treebank",
        "absent.conllu": "absent.conllu",
    }.items():
        message = refused("doctor", corpus, "--config", config_file, "--tags", tmp_path / file)
        assert words in message and "objective" not in message


@pytest.mark.long
def test_a_config_that_follows_from_the_text_is_looked_at_as_it_is_trained(corpus, done):
    found = json.loads(done("doctor", corpus, "--config", "scratch_small", "--json").out)
    assert found["training"]["parameters"] < 2e6
    advice = [each["change"] for each in found["changes"]]
    assert "a smaller --passes" in advice and not any("--phases" in each or "smaller model" in each for each in advice)


def test_prepare_tells_its_time_and_writes_nothing(config_file, tmp_path, done):
    assert "100 workers" in done("prepare", config_file, "--workdir", tmp_path / "run", "--dry-run").out
    assert not list(tmp_path.iterdir())
