"""A folder of sentence-transformers, and the run that import makes of it, are taken where an encoder is needed."""

from pathlib import Path

import pytest
from conftest import stories

from bert_jax.cli.main import run
from bert_jax.products.bench import bench

FOLDER = Path(__file__).parents[1] / "golden" / "vectors" / "bert"
PHASE = "--phases.0.length 16 --phases.0.batch-size 2 --phases.0.steps 2 --preparation.processes 1".split()


@pytest.fixture(scope="module")
def models(tmp_path_factory) -> dict[str, str]:
    """The model as a folder and as an imported run."""
    imported = tmp_path_factory.mktemp("imported") / "run"
    assert run(["import", str(FOLDER), str(imported)]) == 0
    return {"folder": str(FOLDER), "run": str(imported)}


@pytest.fixture(params=["folder", "run"])
def model(request, models) -> str:
    return models[request.param]


@pytest.fixture
def text(tmp_path) -> str:
    (tmp_path / "text.txt").write_text(stories(40))
    return f"text:{tmp_path / 'text.txt'}"


@pytest.mark.long
def test_its_encoder_is_pretrained_further_and_then_has_a_head(models, text, tmp_path, done):
    for name, model in models.items():
        said = done("pretrain", model, "--init", model, "--workdir", tmp_path / name, "--data.source", text, *PHASE).err
        assert "the settings of its encoder are taken" in said and "only its encoder is used" in said
    done("fill-mask", tmp_path / "run", "a [MASK]")


@pytest.mark.long
def test_commands_that_need_its_sizes_take_it(model, done, monkeypatch):
    monkeypatch.setattr(bench, "_CPU_SIZES", (128,))
    done("params", model)
    done("bench", model, *"--batch-size 2 --length 8 --seconds 0.01".split())


def test_the_doctor_takes_it_and_names_the_vocabulary_and_no_smaller_model(model, text, done):
    shown = " ".join(done("doctor", text, "--config", model).out.split())
    for heading in ("Languages", "Sequences of the whole text", "Vocabularies", "Its time"):
        assert heading in shown
    assert "one trained on the text has" in shown and "by bert-jax vocab --extend, or begin a new model" in shown
    _, advice = shown.split("What to change")
    assert "smaller model" not in advice and "--vocabulary.size" not in advice


def test_its_vocabulary_is_extended(model, tmp_path, done):
    (tmp_path / "words.txt").write_text("zebra\n")
    done("vocab", "--extend", model, "--words", tmp_path / "words.txt", "--output", tmp_path / "longer.txt")
    assert (tmp_path / "longer.txt").read_text().endswith("\nzebra\n")


def test_what_needs_a_head_says_how_to_train_it(model, tmp_path, refused):
    (tmp_path / "lines.txt").write_text("a text\n")
    for words in (["fill-mask", model, "a [MASK]"], ["score", model, tmp_path / "lines.txt"]):
        assert "--workdir RUN --data.source TEXT" in refused(*words)


def test_what_needs_a_pretraining_run_says_how_to_make_it(models, refused):
    model = models["run"]
    assert f"pretrain {model} --init {model} --workdir RUN --data.source TEXT" in refused("inspect", model)
