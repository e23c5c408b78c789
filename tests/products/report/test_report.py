"""The command, and what its pages hold."""

import json
import re
import shutil
from pathlib import Path

import numpy as np
import pytest
from reports import HOSTILE

from bert_jax.cli.main import run as command
from bert_jax.inference.bert import load
from bert_jax.products.page.charts import line_chart, points_for
from bert_jax.products.page.page import data_block, element, escaped, page, table, vega_bundle
from bert_jax.products.report import report as report_module
from bert_jax.products.report.model_views import _attention
from bert_jax.products.report.report import write_report
from bert_jax.products.report.run_summary import RunSummary
from bert_jax.run.curves import Curve
from bert_jax.run.recorded_config import write_config
from bert_jax.run.run_files import RunFiles

GOLDEN = Path(__file__).parents[2] / "golden"


def charts_of(text: str) -> dict:
    return json.loads(re.search(r'<script type="application/json" id="charts">(.*?)</script>', text, re.S)[1])


def test_the_page_of_a_run_has_its_facts(tiny_copy):
    assert command(["report", str(tiny_copy.path)]) == 0
    text = (tiny_copy.path / "report.html").read_text()
    for title in ("Verdict", "Learning curves", "Fills of the same", "Attention", "Data", "Parameters", "Settings"):
        assert f"{title}" in text
    curves = charts_of(text)["learning-chart-1"]["series"]
    assert {curve["name"]: curve["x"] for curve in curves} == {"held out": [6, 12], "training": [3, 6, 9, 12]}
    assert "model.num_layers" in text and "12 steps" in text and "; jax " in text  # settings, event, environment
    assert sum(part.copies * part.parameters for part in RunSummary(tiny_copy.path).parts) > 0


def test_vectors_of_texts_stand_beside_each_comparison_of_words(vectors_run, page_of):
    text = page_of(vectors_run.path)
    cells = re.findall(r"<t[hd][^>]*>([^<]*)</t[hd]>", text[text.index("Metrics on held-out data") :])
    assert cells[:4] == ["metric", "model", "tf-idf", "BM25"]
    assert cells[4:8] == ["nDCG@10", "0.5000", "0.7500", "0.8750"]
    assert cells[8:12] == ["nDCG@10, width 64", "0.2500", "", ""]
    assert "Held-out nDCG@10" in text and "<small>BM25 0.875</small>" in text
    assert any(layer.get("data") == {"values": [{"y": 0.875, "s": "BM25"}]} for layer in layers_of(text))


def test_an_imported_model_of_vectors_has_its_own_parameters_and_no_rows(tmp_path, page_of):
    assert command(["import", str(GOLDEN / "vectors" / "bert"), str(tmp_path / "run")]) == 0
    text = page_of(tmp_path / "run")
    assert "Parameters by group" in text and "Rows of the task" not in text
    assert {part.group for part in RunSummary(tmp_path / "run").parts} == {"embeddings", "block"}


def test_pairs_of_a_corpus_are_named_in_the_rows(vectors_run, page_of):
    config = RunFiles(vectors_run.path).config
    task = config.task.replace(train=None, dev=None, source="text:a.txt")
    write_config(vectors_run.config_file, config.replace(task=task))
    text = page_of(vectors_run.path)
    assert "text:a.txt" in text and "pairs held out from the corpus" in text


def layers_of(text: str) -> list[dict]:
    """The layers of all charts of a page."""
    return [layer for chart in charts_of(text).values() for layer in chart["spec"].get("layer", [])]


def test_languages_are_compared_and_all_are_in_a_table(without_measurements, page_of):
    languages = [f"{first}{second}" for first in "ab" for second in "klmnop"]
    values = {f"{language}/{name}": 0.5 for language in languages for name in ("mlm_loss", "mlm_accuracy")}
    lines = ({"step": step, "split": "eval", "loss": 1.0, **values} for step in (6, 12))
    (without_measurements / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    text = page_of(without_measurements)
    assert len(charts_of(text)["languages-chart-2"]["series"]) == 8 and "the first 8 of 12 languages" in text
    assert all(f">{language}</th>" in text for language in languages)


def test_what_a_run_holds_stays_text(hostile_run, page_of):
    text = page_of(hostile_run)
    text = text[: text.index("<script>")]  # up to Vega
    assert "alert(1)" in text and "<img" not in text  # it is shown, as text
    assert text.count("<script") == text.count("</script>") == text.count('<script type="application/json"') == 2
    assert "\x07" not in text and str(hostile_run.name) not in text


def test_the_script_of_the_charts_is_joined_once_and_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    vega_bundle.cache_clear()
    script = vega_bundle()
    assert "</script" not in script
    vega_bundle.cache_clear()
    monkeypatch.setattr("vl_convert.javascript_bundle", lambda: pytest.fail("joined again"))
    assert vega_bundle() == script
    vega_bundle.cache_clear()


def test_data_cannot_end_its_element():
    text = data_block("x", {"text": HOSTILE})
    assert text.count("<") == 2 and json.loads(text[text.index("{") : text.rindex("}") + 1])["text"] == HOSTILE


def test_texts_and_attributes_are_escaped_and_cut():
    assert element("a", "<b>", {"href": '"><i>'}) == '<a href="&quot;&gt;&lt;i&gt;">&lt;b&gt;</a>'
    assert len(escaped("x" * 5000)) < 1100 and escaped("a\x00b") == "a\\x00b"
    assert "<td" not in table("c", ["h"], [["<td>"]]) and table("c", ["", "h"], []).count("<th ") == 1


def test_the_policy_allows_these_scripts_and_no_request():
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page("t", element("header"), []))[1]
    assert policy.startswith("default-src 'none'; script-src 'sha256-") and "unsafe-eval" not in policy
    assert "http" not in policy and "connect-src" not in policy


def test_a_run_without_measurement_says_so(without_measurements, page_of):
    text = page_of(without_measurements)
    assert "There is no measurement yet" in text and "0 of 12 steps are done" in text
    assert "There is no finished checkpoint yet" in text and "chart-1" not in text


@pytest.mark.long
def test_several_runs_are_compared_by_name_and_setting(tiny_run, packed_copy, tmp_path, capsys):
    copy = shutil.copytree(tiny_run.path, tmp_path / "other" / tiny_run.path.name)
    output = tmp_path / "compared.html"
    assert command(["report", str(tiny_run.path), str(copy), str(packed_copy), "--output", str(output)]) == 0
    series = charts_of(output.read_text())["learning-chart-1"]["series"]
    names = {curve["name"] for curve in series}
    assert len(names) == 3 and f"other/{copy.name}" in names and "data.packed" in output.read_text()
    assert not (tiny_run.path / "report.html").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["{run}/missing"], "there is nothing at"),
        (["{run}", "{packed}"], "needs a file; add --output FILE"),
        (["{run}", "--output", "{run}/../missing/page.html"], "there is no folder"),
        (["{run}", "--output", "{run}/metrics.jsonl"], "may replace a file of the run"),
        (["{packed}", "{run}", "--output", "{run}/config.json"], "may replace a file of the run"),
        (["{run}/config.json"], "is a file"),
        (["{run}/tokenizer"], "no config.json"),
        (["{run}/checkpoints/00000012"], "is a checkpoint, a part of a run"),
        ([], "report lacks RUN [RUN ...]"),
    ],
)
def test_wrong_use_is_a_line(words, said, tiny_run, packed_copy, capsys):
    filled = [word.format(run=tiny_run.path, packed=packed_copy) for word in words]
    assert command(["report", *filled]) == 2
    assert said in capsys.readouterr().err.replace("\n", "") and not [*tiny_run.path.rglob("*.html")]


def test_a_model_whose_parts_fail_leaves_the_rest_of_the_page(tiny_copy, monkeypatch, page_of):
    def fails(*_):
        raise ValueError("no weights")

    monkeypatch.setattr("bert_jax.products.report.model_views._attention", fails)
    text = page_of(tiny_copy.path)
    assert "The model can&#x27;t be shown: no weights" in text and "Fills of the same" in text


@pytest.mark.long
def test_texts_without_tokens_and_names_and_logs_without_end_are_left_out(tiny_copy, tmp_path):
    results = json.loads(tiny_copy.results_file.read_text()) | {f"a{number}": 1.0 for number in range(100_000)}
    tiny_copy.results_file.write_text(json.dumps(results))
    with open(tiny_copy.metrics_file, "a", encoding="utf-8") as file:
        file.write(json.dumps({"step": 12, "split": "eval", "loss": 1.0, f"{'x' * 400_000}/mlm_loss": 1.0}) + "\n")
    summary = RunSummary(tiny_copy.path)
    assert len(summary.metrics) == 200 and not summary.curves.by_language("mlm_loss")
    write_report(tmp_path / "page.html", [tiny_copy.path])
    assert (tmp_path / "page.html").stat().st_size < 2e6
    bert = load(tiny_copy.path)
    assert bert.tokenizer.encode_spans("\u0301") == [] and _attention(bert, ["\u0301", ""]) is None


def test_without_vl_convert_a_line_names_the_extra(tiny_copy, monkeypatch, capsys):
    monkeypatch.setattr("bert_jax.system.errors.find_spec", lambda name: None)
    assert command(["report", str(tiny_copy.path)]) == 2
    assert '".[report]"' in capsys.readouterr().err.replace("\n", "")
    assert not (tiny_copy.path / "report.html").exists()


def test_a_training_ends_with_its_report_and_one_that_fails_fails_no_training(
    tiny_copy, monkeypatch, capsys, config_file
):
    def fails(*_):
        raise ZeroDivisionError("of a bug")

    line = ["pretrain", str(config_file), "--workdir", str(tiny_copy.path)]
    with monkeypatch.context() as patched:
        patched.setattr(report_module, "run_page", fails)
        assert command(line) == 0
    said = capsys.readouterr().err.replace("\n", " ")
    assert "report.html can't be written (of a bug)" in said and "Traceback" not in said
    assert command(line) == 0
    assert "Verdict" in (tiny_copy.path / "report.html").read_text()


def test_a_page_has_a_bounded_number_of_points():
    curve = Curve(np.arange(10**6), np.random.default_rng(0).normal(size=10**6))
    chart = line_chart("loss", {f"run {n}": curve for n in range(24)}, unit="nats", points=points_for(24 * 8))
    assert sum(len(series["x"]) for series in chart.series) <= 24_000 / 8
    assert len(json.dumps(chart.series)) < 200_000 and len(chart.rows) <= 20


def test_a_link_in_place_of_the_page_is_replaced(without_measurements, tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (without_measurements / "report.html").symlink_to(victim)
    write_report(without_measurements / "report.html", [without_measurements])
    assert victim.read_text() == "mine" and not (without_measurements / "report.html").is_symlink()
