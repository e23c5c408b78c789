"""The page and the files of a suite, of stand-ins and of a small suite that is really trained."""

import json
import re
from html import escape

import pytest
from suite_cases import TASK_TEXT

from bert_jax.cli.main import run
from bert_jax.products.suite.processes import Processes
from bert_jax.products.suite.suite_page import suite_page
from bert_jax.products.suite.verdict_sentences import verdict_sentences

TWO = f'models = ["one", "two"]\nseeds = [0, 1]\n{TASK_TEXT}[grid]\n"task.epochs" = [1, 2]\n'


def test_the_page_has_the_table_the_verdicts_the_settings_and_every_run(stand_ins):
    summary = stand_ins.run(TWO)
    page = suite_page("<my> suite", summary)
    assert "<h1>&lt;my&gt; suite</h1>" in page and "2 models, 1 task, 2 seeds; scores of the dev rows" in page
    for kind, text in verdict_sentences(summary):
        assert f'<li class="{kind}">' in page and escape(text) in page
    assert all(escape(cell.text) in page for cell in summary.cells["sst2"].values())
    assert "Best settings, chosen on dev rows" in page and "epochs 1" in page
    assert page.count("<tr>") >= 8 + 2
    names = set(re.findall(r'"name":"((?:one|two) \d #\d)"', page))
    assert len(names) == 8  # every run has a curve of its own in one chart


def test_without_pairs_of_models_or_settings_nothing_is_compared(stand_ins):
    summary = stand_ins.run(f'models = ["one"]\n{TASK_TEXT}')
    kinds = [kind for kind, _ in verdict_sentences(summary)]  # of baselines, the best checkpoint, rows seen, its use
    assert kinds == ["note", "problem", "note", "note", "note"]
    assert "Best settings" not in suite_page("one", summary)


def test_baselines_edges_times_and_empty_cells_are_shown(stand_ins):
    (stand_ins.folder / "pairs.jsonl").touch()
    stand_ins.lacking = {("two", "pairs"): "has no head that predicts tokens"}
    summary = stand_ins.run(f'{TWO}[[tasks]]\npairs = "pairs.jsonl"\n')
    *_, two, last = summary.table()
    assert (last["model"], two[">pairs"], last[">sst2"], last[">pairs"]) == ("baseline", "", "0.900", "0.500")
    texts = [text for _, text in verdict_sentences(summary)]
    assert "pairs: two has no score, as it has no head that predicts tokens." in texts
    assert "sst2: one, two scored no better than the baseline." in texts
    assert any(text.startswith("epochs ") and "of the grid and the best for" in text for text in texts)
    assert any("is the standard deviation over seeds" in text for text in texts)
    assert any("with Holm's correction" in text for text in texts)
    assert all(isinstance(row["seconds"], float) for row in summary.runs)
    assert "seconds<" in suite_page("some", summary)


def test_pairs_that_a_model_cannot_score_are_left_out_for_all(stand_ins):
    stand_ins.outcomes = {"one": "11110000", "two": "1111----"}
    summary = stand_ins.run('models = ["one", "two"]\n[[tasks]]\npairs = "pairs.jsonl"\n')
    assert {name: cell.mean for name, cell in summary.cells["pairs"].items()} == {"one": 1.0, "two": 1.0}
    assert summary.differences["two", "pairs"].rows == 4


def test_the_best_of_several_models_is_named_with_those_that_do_not_differ_from_it(stand_ins):
    stand_ins.outcomes = {"one": "10" * 100, "two": "1" * 190 + "0" * 10, "three": "1" * 188 + "0" * 12}
    summary = stand_ins.run('models = ["one", "two", "three"]\n[[tasks]]\npairs = "pairs.jsonl"\n')
    best = {"task": "pairs", "model": "two", "score": 0.95, "indistinguishable": ["three"]}
    assert summary.content["winners"] == [best]
    _, said = next(verdict_sentences(summary))
    assert said == "pairs: the best is two with 0.950; not distinguishable from it: three"
    stand_ins.outcomes["three"] = stand_ins.outcomes["one"]
    summary = stand_ins.run('models = ["one", "two", "three"]\n[[tasks]]\npairs = "pairs.jsonl"\n', workdir="again")
    assert next(verdict_sentences(summary))[1].endswith("all others are worse")


@pytest.mark.long
def test_a_small_suite_is_trained_scored_and_shown(tiny_run, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(Processes, "call", lambda processes, function, *arguments, log=None: function(*arguments))
    rows = "".join(f"the {word} house\t{label}\n" for word, label in (("old", 1), ("quiet", 0)) * 8)
    for name in ("train.tsv", "dev.tsv"):
        (tmp_path / name).write_text(f"sentence\tlabel\n{rows}")
    pair = {"sentence_good": "the old house", "sentence_bad": "house old the"}
    for name in ("order.jsonl", "again.jsonl"):
        (tmp_path / name).write_text(json.dumps(pair) + "\n")
    settings = 'max_length = 16\nepochs = 1\nbatch_size = 8\n[[tasks]]\nname = "order"\npairs = "*.jsonl"\n'
    (tmp_path / "small.toml").write_text(f'data = "{tmp_path}"\n{TASK_TEXT}{settings}')
    line = ["suite", str(tmp_path / "small.toml"), "--workdir", str(tmp_path / "W"), "--models", str(tiny_run.path)]
    assert run([*line, "--dry-run"]) == 0 and "4 runs, about" in capsys.readouterr().out
    assert run(line) == 0
    content = json.loads((tmp_path / "W/suite.json").read_text())
    runs = {row["task"]: row for row in content["runs"]}
    (tuned,) = (tmp_path / "W/runs").iterdir()
    assert runs["sst2"]["score"] == json.loads((tuned / "results.json").read_text())["accuracy"]
    assert runs["order"]["score"] in (0.0, 1.0) and runs["order"]["metrics"]["files"].keys() == {"order", "again"}
    (answers,) = (tmp_path / "W/answers").iterdir()
    answers = json.loads(answers.read_text())["figures"]
    right = sum(map(int.__eq__, answers["golds"], answers["predicted"]))
    assert right / 16 == answers["accuracy"] == runs["sst2"]["score"]
    assert "<h1>small</h1>" in (tmp_path / "W/report.html").read_text()
    assert "| model | sst2 | order | average |" in (tmp_path / "W/table.md").read_text()
