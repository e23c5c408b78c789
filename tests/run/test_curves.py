import json

import numpy as np

from bert_jax.run.curves import Curve, Curves


def written(path, *lines):
    path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return Curves(path)


def test_thinning_keeps_both_ends_and_every_extreme():
    values = np.sin(np.arange(50_000) / 1000)
    values[[123, 40_001]] = 9, -9
    thinned = Curve(np.arange(50_000), values).thinned(500)
    assert 400 < len(thinned.steps) <= 500 and (np.diff(thinned.steps) > 0).all()
    assert {0, 123, 40_001, 49_999} <= {*thinned.steps.tolist()}
    assert (thinned.values == values[thinned.steps]).all()


def test_a_short_curve_is_left_as_it_is():
    curve = Curve(np.arange(3), np.zeros(3))
    assert curve.thinned(500) is curve


def test_values_that_no_chart_can_show_are_left_out(tmp_path):
    lines = [
        {"step": 1, "split": "train", "loss": 3.0, "mlm_loss": True, "mfu": None},
        {"step": 2, "split": "train", "loss": None},
        {"step": 3, "split": "train", "loss": 10**400, "skipped": "two", "mfu": -(10**400)},
        {"step": 4, "split": "train", "loss": 1},
    ]
    curves = written(tmp_path / "metrics.jsonl", *lines)
    loss = curves.of("train", "loss")
    assert loss.steps.tolist() == [1, 4] and loss.values.tolist() == [3.0, 1.0] and loss.last == 1.0
    assert curves.without_loss == 2 and curves.lines == 4 and curves.last_step == 4
    assert not any(curves.of("train", name) for name in ("mlm_loss", "mfu", "skipped", "step"))


def test_steps_are_put_in_order(tmp_path):
    curves = written(tmp_path / "metrics.jsonl", *({"step": step, "split": "eval", "loss": step} for step in (3, 1, 2)))
    assert curves.of("eval", "loss").values.tolist() == [1, 2, 3]


def test_the_measurements_of_languages_are_found_by_their_names(tmp_path):
    line = {"step": 1, "split": "eval", "loss": 1.0, "hi/loss": 2.0, "en/loss": 0.5, "en/accuracy": 0.1}
    found = written(tmp_path / "metrics.jsonl", line).by_language("loss")
    assert {language: curve.last for language, curve in found.items()} == {"en": 0.5, "hi": 2.0}


def test_names_without_end_take_no_memory(tmp_path):
    line = {"step": 1, "split": "eval"} | {f"name{number}": 1.0 for number in range(5000)}
    assert len(written(tmp_path / "metrics.jsonl", line)._curves) == 600


def test_damaged_lines_are_told_and_cost_no_other(tmp_path):
    file = tmp_path / "metrics.jsonl"
    file.write_text(
        '{"step": 1, "split": "train", "loss": 1.0}\n{"step": \n{"step": 3, "split": "train", "loss": 3.0}\n'
    )
    curves = Curves(file)
    assert curves.lines == 2 and curves.damage.startswith("2 (it is no JSON")
    assert not Curves(tmp_path / "missing.jsonl").lines
