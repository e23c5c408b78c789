import json
import time

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


def test_a_full_disk_is_said_once_and_what_it_did_not_take_is_written_later(tmp_path, capsys):
    log = MetricsLog(tmp_path, 0, tensorboard=True)
    log.write(1, "train", {"loss": 1.0})
    real, log._file = log._file, open("/dev/full", "ab", buffering=0)
    for step in (2, 3):
        log.write(step, "train", {"loss": 1.0})
    said = capsys.readouterr().err.replace("\n", " ")
    assert said.count("WARNING") == 1 and "No space left on device" in said and "training goes on" in said
    log._file.close()
    log._file = real
    log.write(4, "train", {"loss": 1.0})
    log.close()
    assert [line["step"] for line in read_metrics(log.path)] == [1, 2, 3, 4] and not capsys.readouterr().err


def test_lines_that_were_never_taken_are_said_to_be_lost(tmp_path, capsys):
    log = MetricsLog(tmp_path, 0, tensorboard=False)
    log._file = open("/dev/full", "ab", buffering=0)
    log.write(1, "train", {"loss": 1.0})
    log.close()
    assert "the last lines of" in capsys.readouterr().err


def test_events_go_to_a_new_file_after_a_write_that_failed(tmp_path, monkeypatch):
    log, now = MetricsLog(tmp_path, 0, tensorboard=True), time.time()
    monkeypatch.setattr(time, "time", lambda: now + 10)  # a file is named by the second

    def full(_):
        raise OSError(28, "No space left on device")

    log._events.write_event = full
    for step in (1, 2):
        log.write(step, "train", {"loss": 1.0})
    log.close()
    assert len(list((tmp_path / "tensorboard").glob("events*"))) == 2
    assert [line["step"] for line in read_metrics(log.path)] == [1, 2]


def test_the_newest_line_of_a_split_is_known_after_a_restart(tmp_path):
    log = MetricsLog(tmp_path, 0, tensorboard=False)
    assert log.last_step("eval") == -1
    for step in (10, 20, 30):
        log.write(step, "eval", {"loss": 1.0})
    log.close()
    assert log.last_step("eval") == 30 and MetricsLog(tmp_path, 20, tensorboard=False).last_step("eval") == 20


def test_a_damaged_line_is_left_out(tmp_path):
    damaged = [
        '{"ste\x00p',
        "7",
        "null",
        '{"stfp": 2, "split": "train"}',
        '{"step": "2", "split": "train"}',
        '{"step": 2}',
    ]
    lines = ['{"step": 1, "split": "train"}', *damaged, '{"step": 3, "split": "eval"}', ""]
    (tmp_path / "metrics.jsonl").write_text("\n".join(lines))
    assert [line["step"] for line in read_metrics(tmp_path / "metrics.jsonl")] == [1, 3]
    assert MetricsLog(tmp_path, 3, tensorboard=False).last_step("eval") == 3
