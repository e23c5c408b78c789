"""Minimal pairs: the files, what is left out, ties, means over files, and the accuracies of an independent scorer."""

import gzip
import json
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest

from bert_jax.inference.minimal_pairs import pair_accuracies
from bert_jax.inference.pair_files import pair_files, read_pairs
from bert_jax.inference.scoring import ScoredText
from bert_jax.system.errors import UsageError

COLUMNS = "sentence_good", "sentence_bad"


def pair(good: str, bad: str, **others: object) -> dict[str, object]:
    return {"sentence_good": good, "sentence_bad": bad, **others}


def write(path, rows) -> None:
    content = "".join(json.dumps(row) + "\n" for row in rows).encode()
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)


def letters(texts):
    """A score of minus the number of letters e of a text; "long" has none, and an empty text."""
    for text in texts:
        ids = [ord(letter) for letter in text.lower().strip()]
        logs = None if text == "long" or not ids else np.array([-float(number == 101) for number in ids])
        yield ScoredText(text, ids, logs)


def measured(files, groups=None, normalized=False):
    repairs = Counter()
    return pair_accuracies(files, read_pairs(files, COLUMNS, groups, repairs), letters, repairs, normalized), repairs


def test_means_are_over_files_and_a_tie_counts_half(tmp_path):
    write(tmp_path / "one.jsonl.gz", [pair("a", "e", field="x"), pair("e", "a", field="y"), pair("b", "c", field="x")])
    write(tmp_path / "two.jsonl", [pair("a", "ee", field="x", linguistics_term="t")])
    results, repairs = measured(pair_files([str(tmp_path)]))
    assert results.files == {"one": 0.5, "two": 1.0} and results.score == 0.75
    assert results.groups == {"field": {"x": (0.75 + 1) / 2, "y": 0.0}, "linguistics_term": {"t": 1.0}}
    figures = {"accuracy": 0.75, "pairs": 4, "ties": 1, "left_out": 0}
    assert {name: results.measurements[name] for name in figures} == figures
    assert not +repairs and not results.remarks


def test_scores_a_token_are_compared_on_request(tmp_path):
    write(tmp_path / "one.jsonl", [pair("eeabcdef", "ee")])
    files = pair_files([str(tmp_path / "one.jsonl")])
    assert measured(files)[0].score == 0.0 and measured(files, normalized=True)[0].score == 1.0


def test_equal_sentences_and_tokens_tie_and_other_pairs_are_left_out(tmp_path):
    rows = [pair("One", "one"), pair("a", "a"), pair("a", " "), pair("", "a"), pair("a", "long"), pair("a", "e")]
    write(tmp_path / "one.jsonl", rows)
    results, repairs = measured(pair_files([str(tmp_path)]))
    assert results.score == pytest.approx(2 / 3)
    assert results.measurements["pairs"] == 3 and results.measurements["ties"] == 2
    assert results.content["outcomes"] == {"one": "==---1"}
    assert repairs == {"pairs of equal sentences, which are ties": 1}
    assert results.remarks == ["3 pairs left out, as a sentence has no score."]


def test_columns_of_groups_are_chosen(tmp_path):
    write(tmp_path / "one.jsonl", [pair("a", "e", UID="u", field="x"), pair("e", "a", UID="v", field="x")])
    files = pair_files([str(tmp_path)])
    assert measured(files, ("UID",))[0].groups == {"UID": {"u": 1.0, "v": 0.0}}
    assert measured(files, ())[0].groups == {}
    with pytest.raises(UsageError, match="line 1 has no column 'kind': .*, and those of groups by --groups"):
        measured(files, ("kind",))


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([pair("a", "e"), pair("a", 7)], "line 2: 'sentence_bad' is a number and not a text"),
        ([pair("a", "")], "no pair of 'one' could be scored; give files with pairs of texts"),
        ([], "no pair of 'one' could be scored"),
    ],
)
def test_rows_that_are_no_pairs_are_refused(tmp_path, rows, expected):
    write(tmp_path / "one.jsonl", rows)
    with pytest.raises(UsageError, match=expected):
        measured(pair_files([str(tmp_path)]))


def test_files_are_found_by_path_folder_and_pattern(tmp_path):
    for name in ("b.jsonl.gz", "a.c.jsonl", "notes.md"):
        write(tmp_path / name, [pair("a", "e")])
    assert [*pair_files([str(tmp_path)])] == ["a.c", "b"]
    assert [*pair_files([f"{tmp_path}/*.gz", str(tmp_path / "b.jsonl.gz")])] == ["b"]
    (tmp_path / "other").mkdir()
    write(tmp_path / "other" / "b.jsonl", [])
    (tmp_path / "empty").mkdir()
    for paths, words in (
        ([tmp_path, tmp_path / "other"], "have one name, 'b', in the results; rename one"),
        ([tmp_path / "none.jsonl"], "none.jsonl' names no file: there is nothing"),
        ([tmp_path / "empty"], "empty' has no file of pairs; give files"),
    ):
        with pytest.raises(UsageError, match=words):
            pair_files([*map(str, paths)])


def test_two_lines_are_a_pair_whose_order_is_said(tmp_path):
    path = tmp_path / "zorro.txt"
    path.write_text("the e dog\nthe dog\ne e e\nan e\n")  # the second line is the acceptable one
    files, repairs = pair_files([str(tmp_path)]), Counter()
    pairs = list(read_pairs(files, None, None, repairs))
    assert [(each.good, each.bad) for each in pairs] == [("the dog", "the e dog"), ("an e", "e e e")]
    assert [each.good for each in read_pairs(files, ("1", "2"), None, Counter())] == ["the e dog", "e e e"]
    results = pair_accuracies(files, pairs, letters, repairs)
    assert results.score == 1.0 and "2 pairs of lines, the second line being the acceptable" in results.remarks[0]
    path.write_text("sentence_good\tsentence_bad\nan e\te e e\n")  # with tabs it is a table
    assert [each.bad for each in read_pairs(files, None, None, Counter())] == ["e e e"]
    for content, line in (("a\nb\nc\n", 3), ("a\nb\n\nc\nd\n", 3), ("a\n\nb\nc\n", 1)):
        path.write_text(content)
        with pytest.raises(UsageError, match=f"zorro.txt, line {line}: in a .txt file two lines are a pair"):
            list(read_pairs(files, None, None, Counter()))


def test_a_choice_by_length_alone_is_said_and_scores_a_token_stand_beside_it(tmp_path):
    write(tmp_path / "one.jsonl", [pair("ae", "aeebbb")] * 60 + [pair("aebbbb", "e")] * 4)
    files = pair_files([str(tmp_path)])
    results, _ = measured(files)
    figures = results.file_figures["one"]
    assert figures["pairs"] == 64 and figures["left_out"] == 0
    assert figures["accuracy_of_shorter"] == 60 / 64 and figures["accuracy_per_token"] == 4 / 64
    outcomes = np.repeat([1.0, 0.5], [60, 4])
    assert figures["standard_error"] == pytest.approx(outcomes.std(ddof=1) / 8)
    assert "a choice by length alone is right for 93.8%" in results.remarks[0]
    assert not measured(files, normalized=True)[0].remarks


def test_wrong_files_are_refused_before_what_computes_is_imported():
    code = (
        "import sys; from bert_jax.cli.main import run; assert run(sys.argv[1:]) == 2; "
        "print({'jax', 'tensorflow_datasets'} & {*sys.modules})"
    )
    command = [sys.executable, "-c", code, "score", "a-run", "--pairs", "absent.jsonl"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout == "set()\n" and "'absent.jsonl' names no file" in done.stderr
