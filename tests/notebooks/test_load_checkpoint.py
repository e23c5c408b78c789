import json
from pathlib import Path

import pytest

import bert_jax

NOTEBOOK = Path(bert_jax.__file__).parents[1] / "notebooks" / "load_checkpoint.ipynb"


@pytest.fixture(scope="module")
def notebook() -> dict:
    return json.loads(NOTEBOOK.read_text(encoding="utf-8"))


def test_the_file_holds_no_results(notebook):
    assert notebook["nbformat"] == 4 and len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == [] and cell["execution_count"] is None


def test_alone_it_names_the_notebook_that_trains_its_model(notebook, monkeypatch, tmp_path):
    pytest.importorskip("matplotlib")
    monkeypatch.delenv("BERT_JAX_MODEL", raising=False)
    monkeypatch.chdir(tmp_path)
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    with pytest.raises(FileNotFoundError, match="first_model.ipynb trains it in a minute; or set path to a model"):
        exec("\n".join(cells[:2]), {})


def test_every_cell_runs_on_a_run(notebook, tiny_run, monkeypatch, capsys):
    pytest.importorskip("matplotlib").use("Agg")
    monkeypatch.setenv("BERT_JAX_MODEL", str(tiny_run.path))
    names: dict = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec(compile("".join(cell["source"]), cell["id"], "exec"), names)
    printed = capsys.readouterr().out
    assert "2 layers of 2 heads, width 32, 150 pieces" in printed
    assert printed.count("within a sense") == 3 and printed.count("[MASK]") == 3
    senses, grid, head = (names[f"{which}_figure"].axes for which in ("senses", "grid", "head"))
    for ax in senses:
        drawn = [points.get_offsets() for points in ax.collections]
        assert [len(points) for points in drawn] == [6, 6] and all(abs(points).max() > 0 for points in drawn)
    assert [len(ax.images) for ax in grid] == [1] * 4 and len(head[0].images) == 1
    assert [label.get_text() for label in head[0].get_xticklabels()] == names["tokens"]
    assert len(names["tokens"]) == names["attention"].shape[-1]
    names["plt"].close("all")
