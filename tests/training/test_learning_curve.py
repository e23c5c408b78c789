import pytest

from bert_jax.system import picture
from bert_jax.training.learning_curve import write_learning_curve


def lines(count):
    train = [{"step": step, "split": "train", "loss": 1 / step} for step in range(1, count + 1)]
    return [*train, {"step": count, "split": "eval", "f1": 0.5}, {"step": count, "split": "eval", "f1": None}]


@pytest.mark.filterwarnings("error")
def test_a_curve_is_drawn_of_two_points_and_more(tmp_path):
    pytest.importorskip("matplotlib")
    path = tmp_path / "curve.png"
    write_learning_curve(path, lines(1), "f1", "$x: f1 0.5")
    assert not path.exists()
    for metric in ("f1", None):
        write_learning_curve(path, lines(5), metric, "$x: f1 0.5")
        assert path.read_bytes().startswith(b"\x89PNG")


def test_without_matplotlib_nothing_is_drawn_which_is_said_once(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(picture, "find_spec", lambda name: None)
    picture._say_missing.cache_clear()
    for _ in range(2):
        write_learning_curve(tmp_path / "curve.png", lines(5), "f1", "x")
    assert not list(tmp_path.iterdir())
    assert capsys.readouterr().err.count("matplotlib is not installed") == 1
