"""Runs on one page: which figures stand side by side, and which apart."""

import json
import re
import shutil

import pytest

from bert_jax.run.recorded_config import write_config
from bert_jax.run.run_files import RunFiles

APART = "can&#x27;t be compared: they were measured on other"


def captions(text) -> list[str]:
    """The captions of the tables of results of a page, and the names of the runs in each."""
    section = text[text.index('<section id="results"') : text.index('<section id="learning"')]
    tables = re.findall(r"<caption>(.*?)</caption>.*?<tbody>(.*?)</tbody>", section, re.S)
    return [f"{caption}: {' '.join(re.findall(r'<th[^>]*>([^<]*)</th>', rows))}" for caption, rows in tables]


@pytest.fixture
def changed(tiny_run, tmp_path):
    """Makes copies of the tiny run with other values in results.json."""

    def change(name: str, **values):
        run = shutil.copytree(tiny_run.path, tmp_path / name)
        results = json.loads((run / "results.json").read_text()) | values
        (run / "results.json").write_text(json.dumps({key: value for key, value in results.items() if value != "gone"}))
        return run

    return change


def test_only_figures_of_the_same_sequences_and_masks_stand_in_one_table(tiny_run, changed, vectors_run, page_of):
    measured_on = json.loads(tiny_run.results_file.read_text())["measured_on"]
    runs = [changed("a"), changed("b", measured_on=measured_on | {"units": ["word"]}), changed("c")]
    text = page_of(*runs, changed("old", measured_on="gone"), vectors_run.path)
    count = f"sequences {measured_on['sequences']}, length 32"
    assert captions(text) == [
        f"Pretraining 1: {count}, units piece, seed 0: a c",
        f"Pretraining 2: {count}, units word, seed 0: b",
        "Pretraining 3: measured on what isn&#x27;t recorded (by an earlier release, or not finished): old",
        "Fine-tuning: measured on what isn&#x27;t recorded (by an earlier release, or not finished): run",
    ]
    assert text.count(APART) == 2 and "<small> baseline 0." in text and "BM25 0.8750</small>" in text
    assert "training loss, pretraining" in text


def test_runs_that_were_measured_alike_stand_together_without_a_remark(changed, page_of):
    text = page_of(changed("a"), changed("b"))
    assert len(captions(text)) == 1 and APART not in text


def test_settings_differ_also_where_one_run_has_more_of_them(tiny_run, tmp_path, page_of):
    other = shutil.copytree(tiny_run.path, tmp_path / "longer")
    config = RunFiles(other).config
    write_config(other / "config.json", config.replace(phases=(*config.phases, config.phases[-1])))
    text = page_of(tiny_run.path, other)
    section = text[text.index('<section id="settings"') :]
    assert "phases.1.steps" in section and "phases.0.steps" not in section
