import contextlib
import io
import os
import time

import pytest
from rich.table import Table
from rich.text import Text

from bert_jax.system import journal, progress


@pytest.mark.parametrize(
    "seconds, text",
    [(0.04, "0.0 s"), (59.94, "59.9 s"), (187, "3:07"), (8100, "2:15:00"), (359_000, "99:43:20"), (1e6, "12 days")],
)
def test_durations_read_well(seconds, text):
    assert progress.duration(seconds) == text


class Clock:
    """Stands in for `time` in progress: its seconds pass where a test says so."""

    now = 100.0

    def monotonic(self):
        return self.now

    def pass_by(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(progress, "time", clock := Clock())
    return clock


@pytest.fixture
def lines(clock, capsys, monkeypatch):
    """The lines of stages, which say at once what there is."""
    monkeypatch.setattr(progress, "PLAIN_FIRST_S", 0.0)
    monkeypatch.setattr(progress, "PLAIN_EVERY_S", 0.0)
    return lambda: capsys.readouterr().err.splitlines()


def test_a_short_stage_says_nothing_and_a_long_one_now_and_then(clock, capsys):
    with progress.stage("Short", 1, "things") as shown:
        clock.pass_by(1.9)
        shown.advance()
    assert capsys.readouterr().err == ""
    with progress.stage("Long", 9, "things") as shown:
        for seconds in (1.9, 0.1, 14, 1):
            clock.pass_by(seconds)
            shown.advance()
    told = [line.partition(",")[0] for line in capsys.readouterr().err.splitlines()]
    assert told == ["Long: 2/9 things", "Long: 4/9 things", "Long: 4 things in 17.0 s"]


def test_a_stage_gives_amount_rate_time_left_and_note(clock, lines):
    with progress.stage("Long", 40, "steps", start=10) as shown:  # of which 10 were done before
        clock.pass_by(5)
        shown.advance(10, note="loss 1.5")
    assert lines() == ["Long: 20/40 steps, 2.0 steps/s, 10.0 s left | loss 1.5", "Long: 10 steps in 5.0 s, 2.0 steps/s"]
    with progress.stage("Long", 100, "%") as shown:
        clock.pass_by(2)
        shown.advance(50)
    assert lines() == ["Long: 50/100 %, 2.0 s left", "Long: 50 % in 2.0 s"]
    with progress.stage("Reading", 0.25, "MB") as shown:
        clock.pass_by(1)
        shown.advance(0.1)
    assert lines() == ["Reading: 0.10/0.25 MB, 0.10 MB/s, 1.5 s left", "Reading: 0.10 MB in 1.0 s, 0.10 MB/s"]


def test_the_time_left_counts_the_work_after_the_stage(clock, lines):
    with progress.stage("One", 20, "steps", later=990) as shown:
        clock.pass_by(1)
        shown.advance(10)
    assert lines()[0] == "One: 10/20 steps, 10.0 steps/s, 1:40 left in all"


def test_nothing_is_said_of_the_time_left_before_anything_is_done_and_compiling_is_not_counted(clock, lines):
    with progress.stage("Long", 1000, "steps") as shown:
        shown.advance(0, note="compiling")
        clock.pass_by(9)
        shown.pace_from_here(1)
        shown.advance(0)
        clock.pass_by(2)
        shown.advance(1)
    assert lines() == [
        "Long: 0/1,000 steps | compiling",
        "Long: 1/1,000 steps",
        "Long: 2/1,000 steps, 0.50 steps/s, 33:16 left",
        "Long: 2 steps in 11.0 s, 0.50 steps/s once compiled",
    ]


def test_the_rate_of_the_summary_leaves_out_other_work(clock, lines):
    with progress.stage("Long", 100, "steps") as shown:
        clock.pass_by(1)
        shown.advance(50)
        with shown.other_work("evaluations"):
            clock.pass_by(4)
    assert lines()[-1] == "Long: 50 steps in 5.0 s, 50.0 steps/s, evaluations aside" and shown.rate == 10


def test_a_stage_has_no_rate_where_only_its_first_unit_was_done_and_none_from_work_before_it(clock, lines):
    with progress.stage("Long", 100, "steps") as shown:
        with shown.other_work("evaluations"):
            clock.pass_by(3)
        shown.pace_from_here(1)
        assert shown.summary() == "Long: 1 steps in 3.0 s"
        clock.pass_by(1)
        shown.advance(1)
    assert lines()[-1] == "Long: 2 steps in 4.0 s, 1.0 steps/s once compiled"


def test_a_part_of_the_first_file_tells_no_time_left(clock, lines):
    with progress.stage("Preparing", 6000, "files") as shown:
        for part in (0.4, 0.6):
            clock.pass_by(1)
            shown.advance(part)
    assert lines()[:2] == ["Preparing: 0/6,000 files", "Preparing: 1/6,000 files, 0.50 files/s, 3:19:58 left"]


def test_colons_stay_colons(capsys):
    progress.say("q:dog:.txt and piece:x:")
    progress.output.print("q:dog:.txt", markup=False)
    shown = capsys.readouterr()
    assert shown.err == "q:dog:.txt and piece:x:\n" and shown.out == "q:dog:.txt\n"


def test_the_bar_on_a_terminal_begins_anew_after_compiling(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(progress, "console", progress._Console(file=screen, force_terminal=True, width=120))
    with progress.stage("Long", 1000, "steps") as shown:
        shown.advance(0, note="compiling")
        time.sleep(0.3)
        shown.pace_from_here(1)
        for _ in range(3):
            time.sleep(0.02)
            shown.advance(1)
        assert shown._bar.tasks[0].time_remaining < 200


def test_control_characters_are_printed_as_escapes(capsys):
    escape = "\x1b[31mred\x9b2J\x07"
    table = Table(escape, "", title=escape)
    table.add_row(escape, Text(escape))
    progress.output.print(table)
    progress.print_line(f"a path {escape}")
    progress.say(escape)
    shown = capsys.readouterr()
    assert not set("\x1b\x9b\x07") & set(shown.out + shown.err)
    assert shown.out.count(r"\x1b[31mred\x9b2J\x07") == 4 and shown.err == "\\x1b[31mred\\x9b2J\\x07\n"


def test_passwords_in_urls_are_printed_and_noted_by_no_message(tmp_path, capsys):
    journal.open_journal(tmp_path / "events.jsonl")
    try:
        progress.warn("http://user:secret@host/x, https://secret@host, abfs://container@account/y failed")
    finally:
        journal.open_journal(None)
    for said in (capsys.readouterr().err, (tmp_path / "events.jsonl").read_text()):
        assert "http://***@host/x, https://***@host, abfs://container@account/y failed" in said


def test_on_a_narrow_terminal_only_the_note_is_cut(monkeypatch):
    written = io.StringIO()
    monkeypatch.setattr(progress, "console", progress._Console(file=written, force_terminal=True, width=80))
    with progress.stage("Training", 16_000, "steps", start=8_000) as stage:
        stage.advance(500, note="loss 5.832, accuracy: MLM 0.040, rate 1.60e-03, 27 sequences/s")
    assert "Training" in written.getvalue() and "8,500/16,000 steps" in written.getvalue()
    assert "…" in written.getvalue() and "27 sequences/s" not in written.getvalue()


def test_a_full_disk_under_the_log_ends_no_training_and_a_closed_pipe_does(monkeypatch):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(progress.console, "_file", full)
        progress.warn("of a fault")
        with contextlib.suppress(OSError):
            full.close()
    reader, writer = os.pipe()
    os.close(reader)
    with open(writer, "w") as closed:
        monkeypatch.setattr(progress.console, "_file", closed)
        with pytest.raises(BrokenPipeError):
            progress.say("to nobody")
        with contextlib.suppress(OSError):
            closed.close()
    progress.console._buffer.clear()


def test_lines_are_printed_once_without_repeats_and_not_at_all_quietly(capsys):
    with progress.without_repeats():
        progress.say("the model has 5 rows")
        with progress.without_repeats():
            progress.say("the model has 5 rows")
        progress.say("another")
        progress.say("the model has 5 rows")
    progress.say("another")
    with progress.quiet():
        progress.say("measured")
    progress.say("the end")
    assert capsys.readouterr().err.splitlines() == ["the model has 5 rows", "another", "another", "the end"]
