"""The configs that come with the project."""

import re
import runpy
from pathlib import Path

import pytest

from bert_jax.cli.config_files import config_names, find_config, load_config, summary
from bert_jax.config.run import RunConfig

ROOT = Path(__file__).parents[2] / "configs"
CONFIGS = sorted(ROOT.glob("*.py"))
SIZES = {
    "tiny": (2, 128),
    "mini": (4, 256),
    "small": (4, 512),
    "medium": (8, 512),
    "base": (12, 768),
    "large": (24, 1024),
    "gpt_ltr": (12, 768),
    "albert_base": (12, 768),
    "ernie_zh_base": (12, 768),
    "electra_small": (12, 256),
    "electra_base": (12, 768),
    "albert_large": (24, 1024),
    "roberta_base": (12, 768),
    "roberta_large": (24, 1024),
}
MODERN = {"modern_base": (22, 768), "modern_small": (10, 384)}
ABLATIONS = sorted((ROOT / "ablations").glob("*.py"))
EXPERIMENTS = sorted((ROOT / "experiments").glob("*.py"))


def test_the_published_sizes_are_there():
    assert {path.stem for path in CONFIGS} == {*SIZES, *MODERN, "cpu", "cpu_bert", "demo", "demo_bert"}


@pytest.mark.parametrize("path", CONFIGS + ABLATIONS + EXPERIMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_config_says_how_to_run_it_and_builds(path):
    built = runpy.run_path(str(path))
    assert isinstance(built["config"], RunConfig)
    assert f"bert-jax pretrain configs/{path.relative_to(ROOT)} --workdir" in built["__doc__"]
    if path in CONFIGS and path.stem in SIZES | MODERN:
        model = built["config"].model
        assert (model.num_layers, model.hidden_size) == (SIZES | MODERN)[path.stem]
        assert model.hidden_size == 64 * model.num_heads
        assert model.inner_size == model.hidden_size * (4 if path.stem in SIZES else 1.5)


def test_ablations_differ_in_what_is_asked_alone():
    built = {path.stem: runpy.run_path(str(path))["config"] for path in ABLATIONS}
    asked = {name: (config.objective.predict, config.objective.pair) for name, config in built.items()}
    assert asked == {"mlm_nsp": ("masked", "next_sentence"), "mlm": ("masked", "none"), "gpt_ltr": ("next", "none")}
    bert = built["mlm_nsp"]
    for config in built.values():
        seen_alike = config.model.replace(causal=False)
        assert config.replace(model=seen_alike, objective=bert.objective) == bert


def test_experiments_share_text_and_vocabulary():
    """So that all models can be measured on the same sequences, which are as long as full_sentences has them."""
    built = [load_config(f"experiments/{path.stem}") for path in EXPERIMENTS]
    assert len(built) > 5
    assert len({(one.data.held_out, one.vocabulary.model_dump_json()) for one in built}) == 1
    assert all(len(one.phases) == 1 for one in built)
    measured_on = load_config("experiments/full_sentences").phases[0].length
    assert {one.phases[0].length for one in built} == {measured_on, 2 * measured_on}


@pytest.mark.parametrize("path", ABLATIONS + EXPERIMENTS, ids=lambda path: path.stem)
def test_a_copy_of_a_change_builds_the_same_config_from_anywhere(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(path.read_text())
    assert load_config("mine.py") == load_config(f"{path.parent.name}/{path.stem}")


def test_the_left_to_right_twin_is_berts_but_for_its_question():
    base, twin = (runpy.run_path(str(ROOT / f"{name}.py"))["config"] for name in ("base", "gpt_ltr"))
    assert twin.replace(model=twin.model.replace(causal=False), objective=base.objective) == base
    assert twin.model.causal


@pytest.mark.parametrize("name", config_names())
def test_the_line_about_a_config_ends_once(name):
    assert re.search(r"\w[`)]*[.?]$", summary(find_config(name))), summary(find_config(name))
