"""The configs that come with the project."""

import re
import runpy
from pathlib import Path

import pytest

from bert_jax.cli import configs
from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.run import RunConfig
from bert_jax.run.config_files import catalogue, find_config, load_config, names_for, suite_names

ROOT = Path(__file__).parents[2] / "configs"
SIZES = {
    "tiny": (2, 128),
    "mini": (4, 256),
    "small": (4, 512),
    "medium": (8, 512),
    **dict.fromkeys(
        "base gpt_ltr albert_base ernie_zh_base bert_zh_base bert_zh_wwm_base mbert_base xlmr_base electra_base "
        "roberta_base mpnet_base nomic_base eurobert_210m deberta_v3_base xlnet_base".split(),
        (12, 768),
    ),
    **dict.fromkeys(["large", "albert_large", "roberta_large", "xlnet_large"], (24, 1024)),
    "electra_small": (12, 256),
    **dict.fromkeys(["distilbert_base", "deberta_v3_small"], (6, 768)),
    "elmo": (2, 1024),
}
MODERN = {"modern_base": (22, 768), "modern_small": (10, 384)}


def test_the_published_sizes_are_there():
    single = {name for name in catalogue() if "/" not in name}
    assert single == {
        *(*SIZES, *MODERN, "adapt", "babylm", "cpu", "cpu_bert", "demo", "demo_bert", "elmo_demo", "languages_demo"),
        "scratch_small",
    }


def test_each_config_and_suite_is_listed_with_its_summary_in_a_column_of_its_own(capsys):
    configs.Configs.parse([]).execute()
    listed = re.findall(r"^  (\S+)  +(\S.*)$", capsys.readouterr().out, re.M)
    assert {*suite_names(), "demo", "classes"} <= {name for name, _ in listed}


def test_a_suite_with_the_name_of_a_config_is_printed_by_its_folder(capsys):
    for name, first in (("babylm", '"""What two CPU cores learn'), ("suites/babylm", "# BabyLM's text evaluation")):
        configs.Configs.parse([name]).execute()
        assert capsys.readouterr().out.startswith(first)


def kind_of(name: str) -> type[RunConfig] | type[FinetuneConfig]:
    return FinetuneConfig if name.startswith("finetune/") else RunConfig


@pytest.mark.parametrize("name", catalogue())
def test_a_config_is_loaded_by_each_form_of_its_name_and_prints_itself(name, tmp_path, monkeypatch, capsys):
    config = load_config(name, kind_of(name))
    monkeypatch.chdir(tmp_path)
    for form in (f"configs/{name}", f"configs/{name}.py", f"./configs/{name}.py", name.removeprefix("finetune/")):
        assert load_config(form, kind_of(name)) == config
    configs.Configs.parse([name]).execute()
    Path("mine.py").write_text(capsys.readouterr().out)
    assert load_config("mine.py", kind_of(name)) == config
    found = find_config(name)
    assert runpy.run_path("mine.py")["__doc__"] == found.text.strip() + "\n"
    assert re.search(r"\w[`)]*[.?]$", found.summary), "the summary is no whole sentence"


@pytest.mark.parametrize("name", names_for(RunConfig))
def test_a_pretraining_config_gives_its_command_and_size(name):
    found = find_config(name)
    given = name if "/" in name else f"configs/{name}.py"
    assert f"bert-jax pretrain {given} --workdir" in found.text
    if name in SIZES | MODERN:
        model = found.config.model
        assert (model.num_layers, model.hidden_size) == (SIZES | MODERN)[name]
        assert model.layer == "lstm" or model.hidden_size == 64 * model.num_heads
        assert model.inner_size == model.hidden_size * (4 if name in SIZES else 1.5)


def table(name: str) -> dict[str, RunConfig]:
    return {each: config for each, (_, config) in runpy.run_path(str(ROOT / f"{name}.py"))["RECIPES"].items()}


def test_ablations_differ_in_the_objective_alone():
    built = table("ablations")
    objectives = {name: (config.objective.predict, config.objective.pair) for name, config in built.items()}
    assert objectives == {
        "mlm_nsp": ("masked", "next_sentence"),
        "mlm": ("masked", "none"),
        "gpt_ltr": ("next", "none"),
    }
    bert = built["mlm_nsp"]
    for config in built.values():
        assert config.replace(model=config.model.replace(causal=False), objective=bert.objective) == bert


def test_experiments_share_text_vocabulary_and_length():
    """All models are measured on the same sequences."""
    experiments = table("experiments")
    chinese = [one for name, one in experiments.items() if name.startswith("zh_")]
    others = [one for name, one in experiments.items() if not name.startswith("zh_")]
    for built in (chinese, others):
        assert len({(one.data.held_out, one.vocabulary.model_dump_json()) for one in built}) == 1
        assert {phase.length for one in built for phase in one.phases} == {64}
    assert {sum(phase.steps for phase in one.phases) for one in chinese} == {4000}


def test_the_left_to_right_twin_is_berts_but_for_its_question():
    base, twin = load_config("base", RunConfig), load_config("gpt_ltr", RunConfig)
    assert twin.replace(model=twin.model.replace(causal=False), objective=base.objective) == base
    assert twin.model.causal
