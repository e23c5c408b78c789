import json
import math

import pytest

from bert_jax.run.results import Mistake, Results, read_results
from bert_jax.run.run_directory import RunDirectory


def test_what_was_set_is_written_and_read_again(tmp_path):
    values = {"steps": 8, "metric": "f1", "score": 0.5, "f1": 0.5, "constant_prediction": None}
    of_language = {"zh/f1": 0.25, "zh/sequences": 3}
    mistake = {"text": "a", "right": "b", "predicted": "c"}
    results = Results.model_validate(values).updated({"errors": [Mistake(**mistake)], **of_language})
    assert results.content == values | {"errors": [mistake]} | of_language
    (tmp_path / "results.json").write_text(json.dumps(results.content))
    assert read_results(tmp_path / "results.json") == (results, [])
    assert results.metrics == {"f1": 0.5, "zh/f1": 0.25} and results.measurements["zh/sequences"] == 3
    assert results.logged == {"score": 0.5, "f1": 0.5, "zh/f1": 0.25}


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("steps", "many"),
        ("baseline", [1]),
        ("baselines", {"BM25": "high"}),
        ("errors", [{"text": ["x"]}]),
        ("confusion", {"labels": ["a"], "counts": [["x"]]}),
        ("classes", {"a": 1}),
        ("measured_on", 5),
    ],
)
def test_a_value_of_another_type_is_left_out_and_named(tmp_path, name, wrong):
    (tmp_path / "results.json").write_text(json.dumps({"task": "x", "later": [1], "f1": 0.5} | {name: wrong}))
    results, left_out = read_results(tmp_path / "results.json")
    assert left_out == [name] and results.content == {"task": "x", "later": [1], "f1": 0.5}


def test_a_baseline_has_numbers_alone(tmp_path):
    (tmp_path / "results.json").write_text('{"baseline": {"f1": 0.5, "accuracy": null}}')
    assert read_results(tmp_path / "results.json")[0].baseline == {"f1": 0.5}


def test_numbers_that_are_not_finite_are_null_in_the_file(tmp_path):
    values = {"steps": 8, "loss": math.nan, "mlm_loss": math.inf, "mlm_accuracy": 0.5, "measured_on": {"x": [math.nan]}}
    run = RunDirectory(tmp_path)
    run.write_results(Results.model_validate(values))
    nulls = {"loss": None, "mlm_loss": None, "measured_on": {"x": [None]}}
    assert json.loads(run.results_file.read_text()) == values | nulls
    results, wrong = read_results(run.results_file)
    assert not wrong and results.loss is None and results.logged == {"mlm_accuracy": 0.5}
