"""Fine-tuned models as they are written for transformers, which test_transformers.py has read them."""

import os

from safetensors.numpy import load_file

from bert_jax.cli.main import run
from bert_jax.interchange.export import write_model_directory


def test_the_command_exports_a_fine_tuned_run(fine_tuned, write_run, tmp_path, capsys):
    write_run(fine_tuned("span"), tmp_path / "run")
    assert run(["export", str(tmp_path / "run"), str(tmp_path / "model")]) == 0
    assert "exported a BertForQuestionAnswering to" in capsys.readouterr().err
    assert "qa_outputs.bias" in load_file(tmp_path / "model" / "model.safetensors")


def test_a_head_of_no_class_is_one_line_and_leaves_nothing(fine_tuned, write_run, tmp_path, capsys):
    write_run(fine_tuned("marked"), tmp_path / "run")
    assert run(["export", str(tmp_path / "run"), str(tmp_path / "model")]) == 2
    printed = capsys.readouterr().err.replace("\n", " ")
    assert (
        "transformers has no class with the head of task film (--task.kind=marked, --task.no-mix-layers); use"
        in printed
    )
    assert not (tmp_path / "model").exists()


def test_every_file_has_the_mode_that_the_umask_gives(fine_tuned, tmp_path):
    model, before = fine_tuned("class"), os.umask(0o027)
    try:
        write_model_directory(tmp_path / "model", *model[1:], model.task)
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in (tmp_path / "model").iterdir()} == {0o640}
