import pytest

from bert_jax.finetuning.confusion_picture import write_confusion_picture

pytest.importorskip("matplotlib")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("labels", [["$x^$", "b"], ["好", "\U000f0000"]], ids=["no formula", "in no font"])
def test_labels_are_drawn_as_they_are_written_or_as_numbers(tmp_path, labels):
    write_confusion_picture(tmp_path / "confusion.png", {"labels": labels, "counts": [[1, 0], [2, 3]]}, "x$: f1 0.5")
    assert (tmp_path / "confusion.png").read_bytes().startswith(b"\x89PNG")
