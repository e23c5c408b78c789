import io
import time

import pytest
from rich.table import Table
from rich.text import Text

from bert_jax.system import journal, progress


@pytest.mark.parametrize("seconds, text", [(0.04, "0.0 s"), (59.94, "59.9 s"), (187, "3:07"), (8100, "2:15:00")])
def test_durations_read_well(seconds, text):
    assert progress.duration(seconds) == text


def test_long_stages_give_amount_rate_time_left_and_note_and_short_ones_nothing(capsys, monkeypatch):
    with progress.stage("Short", 1, "things") as shown:
        shown.advance()
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(progress, "PLAIN_FIRST_S", 0.0)
    with progress.stage("Long", 40, "steps", start=10) as shown:
        time.sleep(0.05)
        shown.advance(10, note="loss 1.5")
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("Long: 20/40 steps, ")
    assert "steps/s, 0." in lines[0] and lines[0].endswith("s left | loss 1.5")
    assert lines[1].startswith("Long: 10 steps in ") and lines[1].endswith(" steps/s")  # the others were done before
    assert 0 < shown.rate < 200  # of these alone
    with progress.stage("Long", 100, "%") as shown:
        time.sleep(0.02)
        shown.advance(50)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("Long: 50/100 %, ") and lines[0].endswith(" left")
    assert lines[1].startswith("Long: 50 % in ") and "/s" not in "".join(lines)


def test_the_time_left_counts_the_work_after_the_stage(capsys, monkeypatch):
    monkeypatch.setattr(progress, "PLAIN_FIRST_S", 0.0)
    with progress.stage("One", 20, "steps", later=990) as shown:
        shown.advance(10)
    assert shown.time_left(10.0) == "1:40 left in all"
    assert capsys.readouterr().err.splitlines()[0].endswith(" left in all")


def test_nothing_is_said_of_the_time_left_before_anything_is_done_and_compiling_is_not_counted(capsys, monkeypatch):
    monkeypatch.setattr(progress, "PLAIN_FIRST_S", 0.0)
    monkeypatch.setattr(progress, "PLAIN_EVERY_S", 0.0)
    with progress.stage("Long", 1000, "steps") as shown:
        shown.advance(0, note="compiling")
        time.sleep(0.5)
        shown.pace_from_here(1)
        shown.advance(0)
        time.sleep(0.01)
        shown.advance(1)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Long: 0/1,000 steps | compiling"
    assert lines[1] == "Long: 1/1,000 steps" and 2 < shown.rate
    assert lines[-1].startswith("Long: 2 steps in 0.5 s, ") and lines[-1].endswith(" steps/s once compiled")
    left = float(lines[2].removesuffix(" s left").rpartition(", ")[2])
    assert left < 400


def test_the_rate_of_the_summary_leaves_out_other_work(capsys, monkeypatch):
    monkeypatch.setattr(progress, "PLAIN_FIRST_S", 0.0)
    with progress.stage("Long", 100, "steps") as shown:
        shown.advance(50)
        with shown.other_work("evaluations"):
            time.sleep(0.5)
    summary = capsys.readouterr().err.splitlines()[-1]
    assert summary.endswith(" steps/s, evaluations aside") and shown.rate < 100
    assert float(summary.rpartition(", ")[0].rpartition(" in 0.5 s, ")[2].split()[0].replace(",", "")) > 500


def test_a_stage_has_no_rate_where_only_its_first_unit_was_done_and_none_from_work_before_it(capsys, monkeypatch):
    monkeypatch.setattr(progress, "PLAIN_FIRST_S", 0.0)
    with progress.stage("Long", 100, "steps") as shown:
        with shown.other_work("evaluations"):
            time.sleep(0.3)
        shown.pace_from_here(1)
        assert shown.summary() == "Long: 1 steps in 0.3 s"
        time.sleep(0.1)
        shown.advance(1)
    assert shown.rate < 11 and " 9." in shown.summary() and shown.summary().endswith("steps/s once compiled")


def test_a_part_of_the_first_file_tells_no_time_left(capsys, monkeypatch):
    monkeypatch.setattr(progress, "PLAIN_FIRST_S", 0.0)
    monkeypatch.setattr(progress, "PLAIN_EVERY_S", 0.0)
    with progress.stage("Preparing", 6000, "files") as shown:
        shown.advance(0.4)
        shown.advance(0.6)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "Preparing: 0/6,000 files" and lines[1].endswith(" left")


def test_small_amounts_keep_their_decimals(capsys, monkeypatch):
    monkeypatch.setattr(progress, "PLAIN_FIRST_S", 0.0)
    with progress.stage("Reading", 0.25, "MB") as shown:
        time.sleep(0.01)
        shown.advance(0.1)
    first, last = capsys.readouterr().err.splitlines()
    assert first.startswith("Reading: 0.10/0.25 MB, ") and last.startswith("Reading: 0.10 MB in 0.0 s, ")


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
