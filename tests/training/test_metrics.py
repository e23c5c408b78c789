import json

import pytest

from bert_jax.system.errors import RunError
from bert_jax.training.metrics import MetricsLog, read_metrics


def test_lines_are_json_and_only_json(tmp_path):
    log = MetricsLog(tmp_path, 0, tensorboard=True)
    log.write(1, "train", {"loss": 1.5, "mfu": None, "grad_norm": float("nan")})
    log.close()
    assert (
        tmp_path / "metrics.jsonl"
    ).read_text() == '{"step": 1, "split": "train", "loss": 1.5, "mfu": null, "grad_norm": null}\n'
    assert list((tmp_path / "tensorboard").glob("events*"))


def test_going_on_cuts_back_to_the_restored_step(tmp_path):
    log = MetricsLog(tmp_path, 0, tensorboard=False)
    for step in (10, 20, 30):
        log.write(step, "train", {"loss": float(step)})
    log.close()
    with open(tmp_path / "metrics.jsonl", "a") as file:
        file.write('{"step": 40, "spl')  # killed in the middle of a line
    log = MetricsLog(tmp_path, 20, tensorboard=False)
    log.write(30, "train", {"loss": 3.0})
    log.close()
    assert [(line["step"], line["loss"]) for line in read_metrics(tmp_path / "metrics.jsonl")] == [
        (10, 10),
        (20, 20),
        (30, 3),
    ]
    for line in (tmp_path / "metrics.jsonl").read_text().splitlines():
        json.loads(line)


def test_no_file_is_no_lines(tmp_path):
    assert read_metrics(tmp_path / "metrics.jsonl") == []


def test_a_full_disk_is_said_once_and_closing_is_quiet(tmp_path):
    log = MetricsLog(tmp_path, 0, tensorboard=True)
    log._file = open("/dev/full", "a")
    with pytest.raises(RunError, match="no space left"):
        log.write(1, "train", {"loss": 1.0})
    log.close()


def test_a_damaged_line_is_left_out(tmp_path):
    (tmp_path / "metrics.jsonl").write_text('{"step": 1}\n{"ste\x00p\n{"step": 3}\n')
    assert [line["step"] for line in read_metrics(tmp_path / "metrics.jsonl")] == [1, 3]
