"""How long the missing work of a suite takes."""

import json

import pytest
from suite_cases import TASK_TEXT

from bert_jax.config.run import RunConfig
from bert_jax.products.suite import measuring
from bert_jax.products.suite.estimate import print_estimate
from bert_jax.products.suite.work import SuiteWork
from bert_jax.run.config_files import load_config
from bert_jax.system.progress import output

RECIPE = '[[models]]\nconfig = "experiments/modern_electra"\n'


def test_a_forward_pass_of_the_encoder_is_timed_without_generator_and_vocabulary(monkeypatch):
    flops = {}

    def timed(config):
        flops["step"] = measuring.step_flops(config)
        return measuring.TimedSteps(lambda: None, 1, flops["step"])

    monkeypatch.setattr(measuring, "_several_steps", timed)
    monkeypatch.setattr(measuring, "timed_in_turn", lambda *_: {"steps": [flops["step"] * 1e-9]})
    masked, replaced = (
        measuring.token_times(load_config(f"experiments/{name}", RunConfig)) for name in ("modern", "modern_electra")
    )
    assert replaced.forward == pytest.approx(masked.forward)
    assert replaced.pretraining > 1.2 * masked.pretraining > 3 * masked.forward


def estimated_times(work, capsys):
    """The printed time of each missing run, by model and work."""
    print_estimate(work)
    rows = [line.replace(" ", "").split("│") for line in capsys.readouterr().out.splitlines() if "│" in line]
    return {(model, what): time for _, model, what, _, _, time, *_ in rows}


def test_steps_take_the_time_of_pretraining_and_rows_that_of_a_forward_pass(stand_ins, capsys, monkeypatch):
    monkeypatch.setattr(output, "width", 200)
    batch = 32 * 64
    stand_ins.token_times = measuring.TokenTimes(forward=100.0, pretraining=3600 / batch, measurement=0.0)
    work = SuiteWork(stand_ins.suite(f"{RECIPE}{TASK_TEXT}[budget]\nsteps = 10\n"), stand_ins.folder / "W", 1)
    times = {what: time for (_, what), time in estimated_times(work, capsys).items()}
    assert times["pretraining"] == "10:00:00"
    # 1.75 tokens of dev rows are measured after each of 3 epochs; as many are trained on, which takes 3 times as long.
    assert times["sst2:answers"] == "2:55" and times["sst2"] == "35:00"


def test_a_causal_model_reads_a_sentence_once_and_another_once_for_each_of_its_tokens(stand_ins, capsys, monkeypatch):
    monkeypatch.setattr(output, "width", 200)
    (stand_ins.folder / "pairs.jsonl").write_text(json.dumps({"sentence_good": "a" * 40, "sentence_bad": "b" * 40}))
    stand_ins.token_times = measuring.TokenTimes(forward=60.0, pretraining=0.0, measurement=0.0)
    suite = stand_ins.suite('models = ["one", "two"]\n[[tasks]]\npairs = "pairs.jsonl"\n')
    work = SuiteWork(suite._replace(causal=frozenset({"one"})), stand_ins.folder / "W", 1)
    times = estimated_times(work, capsys)
    assert times["one", "pairs"] == "20:00" and times["two", "pairs"] == "4:00:00"  # 2 x 10 tokens, 2 x 10 x 12
