"""A folder of sentence-transformers, and the run that import makes of it, are taken where an encoder is needed."""

from pathlib import Path

import pytest
from conftest import stories

from bert_jax.cli.main import run

FOLDER = Path(__file__).parents[1] / "golden" / "vectors" / "bert"
PHASE = "--phases.0.length 16 --phases.0.batch-size 2 --phases.0.steps 2 --logging.no-tensorboard".split()


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, str]:
    """The model as a folder and as an imported run."""
    imported = tmp_path_factory.mktemp("imported") / "run"
    assert run(["import", str(FOLDER), str(imported)]) == 0
    return {"folder": str(FOLDER), "run": str(imported)}


@pytest.fixture
def text(tmp_path) -> str:
    (tmp_path / "text.txt").write_text(stories(40))
    return f"text:{tmp_path / 'text.txt'}"


@pytest.mark.long
def test_its_encoder_is_pretrained_further_and_then_has_a_head(models, text, tmp_path, capsys):
    for name, model in models.items():
        words = ["--workdir", str(tmp_path / name), "--data.source", text, *PHASE]
        assert run(["pretrain", model, "--init", model, *words]) == 0
        said = capsys.readouterr().err
        assert "the settings of its encoder are taken" in said and "its encoder goes on, without" in said
    assert run(["fill-mask", str(tmp_path / "run"), "a [MASK]"]) == 0


@pytest.mark.parametrize("kind", ["folder", "run"])
@pytest.mark.parametrize("command", [["params"], ["bench", "--batch-size", "2", "--length", "8", "--seconds", "0.1"]])
@pytest.mark.long(first=1)
def test_commands_that_need_its_sizes_take_it(models, kind, command, capsys):
    assert run([command[0], models[kind], *command[1:]]) == 0


@pytest.mark.parametrize("kind", ["folder", "run"])
def test_the_doctor_takes_it_and_names_the_vocabulary_and_no_smaller_model(models, kind, text, capsys, monkeypatch):
    monkeypatch.setattr("bert_jax.training.estimate._PRODUCT_SIZE", 64)
    assert run(["doctor", text, "--config", models[kind]]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "one trained on the text has" in shown and "by bert-jax vocab --extend, or begin a new model" in shown
    _, advice = shown.split("What to change")
    assert "smaller model" not in advice and "--vocabulary.size" not in advice


@pytest.mark.parametrize("kind", ["folder", "run"])
def test_its_vocabulary_is_extended(models, kind, tmp_path, capsys):
    (tmp_path / "words.txt").write_text("zebra\n")
    words = ["vocab", "--extend", models[kind], "--words", str(tmp_path / "words.txt")]
    assert run([*words, "--lowercase"]) == 2
    assert "--lowercase has no effect" in capsys.readouterr().err
    assert run(words) == 2
    assert "name the file to write, such as --output" in capsys.readouterr().err
    assert run([*words, "--output", str(tmp_path / "longer.txt")]) == 0
    assert (tmp_path / "longer.txt").read_text().endswith("\nzebra\n")


@pytest.mark.parametrize("kind", ["folder", "run"])
def test_what_needs_a_head_says_how_to_train_it(models, kind, tmp_path, capsys):
    (tmp_path / "lines.txt").write_text("a text\n")
    for words in (["fill-mask", models[kind], "a [MASK]"], ["score", models[kind], str(tmp_path / "lines.txt")]):
        assert run(words) == 2
        assert "--workdir RUN --data.source TEXT" in capsys.readouterr().err.splitlines()[-1]


def test_what_needs_a_pretraining_run_says_how_to_make_it(models, capsys):
    assert run(["inspect", models["run"]]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert f"bert-jax pretrain {models['run']} --init {models['run']} --workdir RUN --data.source TEXT" in line
