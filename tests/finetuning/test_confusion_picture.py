import pytest

from bert_jax.finetuning.confusion_picture import write_confusion_picture

pytest.importorskip("matplotlib")


def test_labels_are_drawn_as_they_are_written(tmp_path):
    write_confusion_picture(tmp_path / "confusion.png", {"labels": ["$x^$", "b"], "counts": [[1, 0], [2, 3]]})
    assert (tmp_path / "confusion.png").read_bytes().startswith(b"\x89PNG")
