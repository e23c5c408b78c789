import json
import os

import pytest

from bert_jax.system.journal import open_journal, read_journal
from bert_jax.system.progress import tell, warn


@pytest.fixture
def journal(tmp_path):
    open_journal(tmp_path / "events.jsonl")
    yield tmp_path / "events.jsonl"
    open_journal(None)


def test_what_is_said_of_faults_and_turns_is_noted_too(journal, capsys):
    warn("a disk is full")
    tell("resumed", "going on from step 5")
    open_journal(None)
    warn("of another run")
    noted = list(map(json.loads, journal.read_text().splitlines()))
    events = [("fault", "a disk is full"), ("resumed", "going on from step 5")]
    assert [(one["event"], one["message"]) for one in noted] == events
    assert all(one["time"].endswith("+00:00") for one in noted)
    said = ["WARNING: a disk is full", "going on from step 5", "WARNING: of another run"]
    assert capsys.readouterr().err.splitlines() == said


def test_a_line_that_was_not_written_to_its_end_costs_no_other(journal):
    tell("begun", "12 steps")
    whole = journal.read_text()
    journal.write_text(whole + whole[:20])
    tell("resumed", "going on from step 5")
    tell("finished", "step 12")
    first, torn, *others = journal.read_text().splitlines()
    assert (first, torn) == (whole.strip(), whole[:20])
    assert [json.loads(line)["event"] for line in others] == ["resumed", "finished"]


def test_a_journal_is_read_but_for_what_is_no_line_of_one(journal, tmp_path):
    tell("begun", "12 steps")
    with open(journal, "a") as file:
        file.write('{"time": 5, "event": "x", "message": "y"}\nnonsense\n[1]\n')
    tell("finished", "step 12")
    events = [("begun", "12 steps"), ("finished", "step 12")]
    assert [(line.event, line.message) for line in read_journal(journal)] == events
    (tmp_path / "large").write_bytes(b"x" * 4_000_001)
    assert read_journal(tmp_path / "large") == read_journal(tmp_path / "missing") == read_journal(tmp_path) == []


@pytest.mark.parametrize("place", ["gone/events.jsonl", "pipe", "link"])
def test_a_journal_that_cannot_be_written_or_is_a_link_ends_nothing(tmp_path, capsys, place):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "victim").write_text("mine")
    (tmp_path / "link").symlink_to(tmp_path / "victim")
    open_journal(tmp_path / place)
    warn("said all the same")
    open_journal(None)
    assert capsys.readouterr().err == "WARNING: said all the same\n"
    assert (tmp_path / "victim").read_text() == "mine"
