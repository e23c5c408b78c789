import gzip
import os
import threading
import time
from collections import Counter

import pytest
import zstandard

from bert_jax.records import limits
from bert_jax.records.record import Record, RowFormat
from bert_jax.records.sources import held_records, task_records
from bert_jax.records.table_files import has_csv_quotes
from bert_jax.system.errors import UsageError

SQUAD = """{"data": [{"title": "T", "paragraphs": [{"context": "A cat.", "qas": [
{"id": "q1", "question": "Who?", "answers": [{"text": "cat", "answer_start": 2}]},
{"id": "q2", "question": "When?", "answers": [], "is_impossible": true}]}]}]}"""


def read(tmp_path, name, content, **settings):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    repairs = Counter()
    return list(task_records(str(path), repairs, RowFormat(**settings))), repairs


def values(tmp_path, name, content, **settings):
    return [record.values for record in read(tmp_path, name, content, **settings)[0]]


def refused(tmp_path, name, content, **settings):
    with pytest.raises(UsageError) as refusal:
        read(tmp_path, name, content, **settings)
    assert "\n" not in str(refusal.value) and name in str(refusal.value)
    return str(refusal.value)


@pytest.mark.parametrize("pack, end", [(bytes, ""), (gzip.compress, ".gz"), (zstandard.compress, ".zst")])
def test_rows_of_all_formats_have_named_values_and_places(tmp_path, pack, end):
    rows = [{"text": 'He said "a, b"', "label": "1"}, {"text": "雪\u2028x", "label": "0"}]
    tsv = 'text\tlabel\r\nHe said "a, b"\t1\r\n\r\n雪\u2028x\t0\r\n'
    csv = 'text,label\n"He said ""a, b""",1\n\n雪\u2028x,0'
    jsonl = '{"text": "He said \\"a, b\\"", "label": "1"}\n\n{"text": "雪\\u2028x", "label": "0"}\n'
    for name, content in (("a.tsv", tsv), ("a.txt", tsv), ("a.csv", csv)):
        found, repairs = read(tmp_path, name + end, pack(content.encode()))
        assert [record.values for record in found] == rows and repairs == {"empty lines left out": 1}
        assert [record.place for record in found] == [f"{tmp_path / (name + end)}, line {line}" for line in (2, 4)]
    found, repairs = read(tmp_path, "a.jsonl" + end, pack(jsonl.encode()))
    assert [record.values for record in found] == rows and found[1].place.endswith("line 3")
    assert repairs == {"empty lines left out": 1}


@pytest.mark.parametrize(
    "name, content, settings, expected",
    [
        # A quoted field may be long and hold line feeds.
        ("a.csv", 'text,label\n"one\ntwo",1\n', {}, [{"text": "one\ntwo", "label": "1"}]),
        ("a.tsv", f'text\tlabel\n"{"a" * 140_000}\nb"\t1\n', {}, [{"text": "a" * 140_000 + "\nb", "label": "1"}]),
        ("a.csv", f"text,label\n{'x' * 200_000},1\n", {}, [{"text": "x" * 200_000, "label": "1"}]),
        # Fields without text make a row.
        ("a.tsv", "text\tlabel\n\t\nx\t1\n", {}, [{"text": "", "label": ""}, {"text": "x", "label": "1"}]),
        ("a.csv", 'text\nx\n""\n', {}, [{"text": "x"}, {"text": ""}]),
        # Columns without a name are numbered.
        ("a.tsv", "\ttext\t \tlabel\n1\tx\t2\ta", {}, [{"column 1": "1", "text": "x", "column 3": "2", "label": "a"}]),
        ("a.csv", ",text, ,label\n2,y,,b", {}, [{"column 1": "2", "text": "y", "column 3": "", "label": "b"}]),
        # Columns may be named, and the last ones be missing.
        ("a.tsv", "1\n2\t3\n", {"columns": ("text", "rest")}, [{"text": "1"}, {"text": "2", "rest": "3"}]),
        ("a.tsv", 'a;b\n"x;y\n', {"separator": ";"}, [{"a": '"x', "b": "y"}]),
        # CoNLL's columns stand apart by tabs or spaces.
        ("a.bmes", "中 B-X\n国 E-X\n", {}, [{"words": ["中", "国"], "tags": ["B-X", "E-X"]}]),
        ("a.bmes", "a  N O\nb  V O\n", {}, [{"words": ["a", "b"], "column 2": ["N", "V"], "tags": ["O", "O"]}]),
        ("a.bmes", "a\nb\n", {}, [{"words": ["a", "b"]}]),
        ("a.bmes", "John\tB-PER \nsees \t O\n", {}, [{"words": ["John", "sees"], "tags": ["B-PER", "O"]}]),
        ("a.bmes", "O a\n", {"columns": ("ner", "word")}, [{"ner": ["O"], "word": ["a"]}]),
        ("a.bmes", "\u3000 O\n", {}, [{"words": ["\u3000"], "tags": ["O"]}]),
        # Words that begin with a number sign are no comments: with tags, with one that no other line has, and without.
        (
            "a.conll",
            "#Ulm B-LOC\n# O\nis O\n\nUlm B-LOC\n",
            {},
            [{"words": ["#Ulm", "#", "is"], "tags": ["B-LOC", "O", "O"]}, {"words": ["Ulm"], "tags": ["B-LOC"]}],
        ),
        ("a.conll", "#Ulm\tB-LOC\nis\tO\n", {}, [{"words": ["#Ulm", "is"], "tags": ["B-LOC", "O"]}]),
        ("a.conll", "#Ulm\nis\n", {}, [{"words": ["#Ulm", "is"]}]),
        (
            "a.conll",
            "# a b c\n#Ulm N\nis V\n",
            {"columns": ("words", "pos")},
            [{"words": ["#Ulm", "is"], "pos": ["N", "V"]}],
        ),
    ],
)
def test_the_columns_of_a_table_have_the_values_and_names_that_are_written(tmp_path, name, content, settings, expected):
    assert values(tmp_path, name, content, **settings) == expected


def test_one_quote_in_a_long_file_costs_little():
    lines = ["text\tlabel\n", '"a\t1\n', *["b\t0\n"] * 200_000]
    begin = time.process_time()
    assert not has_csv_quotes(lines, "\t")
    assert time.process_time() - begin < 5  # and 20 where each line looks at all lines before it


def test_a_row_is_placed_by_its_first_line_or_its_number_in_an_array(tmp_path):
    found, _ = read(tmp_path, "a.csv", 'text,label\n"one\ntwo",1\nthree,0\n')
    assert [record.place.split(", ")[1] for record in found] == ["line 2", "line 4"]
    found, _ = read(tmp_path, "a.json", '[{"text": "Anna", "label": [{"start": 0, "end": 4}]}, {"text": "x"}]')
    assert [record.values["text"] for record in found] == ["Anna", "x"] and found[1].place.endswith("a.json, row 2")


@pytest.mark.parametrize("name", ["a.tsv", "a.csv"])
def test_empty_lines_of_one_column_are_empty_texts(tmp_path, name):
    found, repairs = read(tmp_path, name, "\ntext\na\n\n\r\nb\n\n\n")
    assert [record.values["text"] for record in found] == ["a", "", "", "b"] and not repairs
    assert [record.place.split(", ")[1] for record in found] == ["line 3", "line 4", "line 5", "line 6"]
    found = values(tmp_path, name, "\na\n", columns=("text",))
    assert found == [{"text": ""}, {"text": "a"}]


def test_rows_are_held_as_long_as_they_take_little_beside_their_file(tmp_path, monkeypatch):
    """A file that doesn't pack well may hold any number of rows."""
    monkeypatch.setattr(limits, "FREE_BYTES", 0)
    file = tmp_path / "rows.csv"
    file.write_text("text,label\n" + "a,0\n" * 100)
    assert len(held_records(str(file), Counter())) == 100
    (tmp_path / "rows.csv.gz").write_bytes(gzip.compress(file.read_bytes()))
    with pytest.raises(UsageError, match=r"rows.csv.gz: its first \d+ rows take .* 200 times its packed size"):
        held_records(f"{file}.gz", Counter())


@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_rows_may_come_from_a_pipe(tmp_path, monkeypatch, pack):
    monkeypatch.setattr(limits, "FREE_BYTES", 0)
    os.mkfifo(pipe := tmp_path / "rows.csv")
    writer = threading.Thread(target=pipe.write_bytes, args=(pack(b"text,label\n" + b"a,0\n" * 100),), daemon=True)
    writer.start()
    assert len(held_records(str(pipe), Counter())) == 100


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.jsonl"])
def test_empty_lines_that_end_a_file_are_left_out_in_silence(tmp_path, name):
    row = '{"text": "x", "label": "1"}\n' if name == "a.jsonl" else "text,label\nx,1\n"
    found, repairs = read(tmp_path, name, (row.replace(",", "\t") if name == "a.tsv" else row) + "\n\n")
    assert len(found) == 1 and not repairs


@pytest.mark.parametrize("name", ["a.tsv", "a.csv", "a.conll"])
def test_columns_of_one_name_are_refused(tmp_path, name):
    (tmp_path / name).write_text("x\n")
    with pytest.raises(UsageError, match="^task.columns names the column 'label' twice; rename one$"):
        next(task_records(str(tmp_path / name), Counter(), RowFormat(columns=("label", "text", "label"))))


def test_a_line_of_the_names_that_are_given_is_no_row(tmp_path):
    found, repairs = read(tmp_path, "rows.tsv", "a\tb\na\tb\n1\t2\n", columns=("a", "b"))
    assert [record.values for record in found] == [{"a": "a", "b": "b"}, {"a": "1", "b": "2"}]
    assert repairs == {"lines of column names left out": 1}
    assert len(read(tmp_path, "rows.tsv", "a\tb\na\tb\n1\t2\n")[0]) == 2


def test_a_line_of_other_names_than_are_given_is_refused(tmp_path):
    said = refused(tmp_path, "a.tsv", "text\tlabel\tid\nx\t1\t7\n", columns=("id", "label", "mark", "text"))
    assert "line 1 names columns, 'text', 'label', 'id', and they are named 'id', 'label', 'mark', 'text' by" in said
    assert len(values(tmp_path, "a.tsv", "text\t1\n", columns=("text", "label"))) == 1  # one such word may be a row's


@pytest.mark.parametrize(
    "content, settings, expected, said",
    [
        ("text;label\na, b;1\n", {}, {"text": "a, b", "label": "1"}, ";"),
        ('text|label\n"a|b"|1\n', {}, {"text": "a|b", "label": "1"}, "|"),
        ("text\tlabel\na\t1\n", {}, {"text": "a", "label": "1"}, "tab"),
        ("text,a;label\nx,y\n", {}, {"text": "x", "a;label": "y"}, None),
        ("x, y;1\n", {"columns": ("text", "label")}, {"text": "x", "label": " y;1"}, None),
        ("x, y, z;1\n", {"columns": ("text", "label")}, {"text": "x, y, z", "label": "1"}, ";"),
        ("text:label\na:1\n", {"separator": ":"}, {"text": "a", "label": "1"}, None),
        ("text\na\n", {}, {"text": "a"}, None),
    ],
)
def test_what_separates_the_columns_of_a_csv_is_found_and_said(tmp_path, capsys, content, settings, expected, said):
    assert values(tmp_path, "a.csv", content, **settings) == [expected]
    told = capsys.readouterr().err
    assert told.endswith(f"a.csv: columns are separated by {said}\n") if said else not told


def test_only_a_table_has_a_separator_and_a_format_of_rows_without_columns_names_its_own(tmp_path):
    said = refused(tmp_path, "a.jsonl", "{}", separator=";")
    assert "--task.separator=';' is what separates the columns of a csv or tsv file" in said
    assert "names its own" in refused(tmp_path, "a.jsonl", "{}", columns=("text",))


def test_halves_of_surrogate_pairs_are_replaced_and_counted(tmp_path):
    content = '{"te\\ud800xt": ["a \\udc00", "\\ud83d\\ude00"]}\n{"text": "\\\\ud800"}\n'
    found, repairs = read(tmp_path, "a.jsonl", content)
    assert [record.values for record in found] == [{"te\ufffdxt": ["a \ufffd", "😀"]}, {"text": "\\ud800"}]
    assert repairs == {"texts with half a surrogate pair, replaced": 2}
    found, repairs = read(tmp_path, "a.json", SQUAD.replace("A cat.", "A c\\ud800at."))
    assert found[0].values["context"] == "A c\ufffdat." and repairs.total() == 2


def test_a_name_with_nul_and_a_million_columns_are_one_short_line(tmp_path):
    with pytest.raises(UsageError, match=r"a\\x00.csv' can't be read"):
        list(task_records("a\0.csv", Counter()))
    found, _ = read(tmp_path, "a.csv", ",".join(f"c{n}" for n in range(50_000)) + "\n1\n")
    with pytest.raises(UsageError) as refusal:
        found[0].value("text")
    assert "there is 'c0'" in str(refusal.value) or "there is 'c0', 'c1'" in str(refusal.value)
    assert len(str(refusal.value)) < 600


@pytest.mark.parametrize(
    "name, content", [("a.tsv", "text\nx\n"), ("a.jsonl", '{"text": "x", "label": "1"}'), ("a.json", SQUAD)]
)
def test_a_byte_order_mark_is_taken_off_and_counted(tmp_path, name, content):
    found, repairs = read(tmp_path, name, b"\xef\xbb\xbf" + content.encode())
    assert not any("\ufeff" in key for key in found[0].values)
    assert repairs == {"byte-order marks taken off": 1}


@pytest.mark.parametrize(
    "name, content, words",
    [
        ("a.tsv", "text\tlabel\nx\ty\t1\n", "line 2 has 3 columns and 2 names for them"),
        ("a.tsv", "text\nx\ty\n", "2 columns and 1 name for them; mend it, name all in line 1 or, if "),
        ("a.csv", "text,text\nx,1\n", "names the column 'text' twice"),
        ("a.csv", 'text,label\nx,1\n"open,0\nmore\n', "line 3: a row begins here that is not CSV"),
        ("a.csv", "text,label\ra,1\r", "lines end in CR alone, as those of old programs; convert them: tr"),
        ("a.csv", "text,label\na\rb,1\n", "line 2: a row begins here that has a carriage return outside quotes"),
        ("a.conll", "a\tO\rb\tO\r", "lines end in CR alone, as those of old programs; convert them: tr"),
        ("a.tsv", "text\tlabel\nx\t1\n".encode("utf-16"), "is UTF-16 text; convert it: iconv -f UTF-16 -t UTF-8"),
        ("a.tsv", b"text\tlabel\nx\xff\t1\n", "line 2: byte 2 is not UTF-8"),
        ("a.conll", "a\tO\nb\n", "line 2 has 1 column ('b') and should have 2: 'words', 'tags'; mend it"),
        ("a.conll", "a\tO\n\nb\tx\tO\n", "line 3 has 3 columns"),
        ("a.conll", "a\tO\n\tO\n", "line 2 has 1 column"),
        ("a.conll", "# x y z\nUlm B-LOC\n# x\nis\nold O\n", "line 4 has 1 column ('is')"),
        ("a.conllu", "a\tO\n", "line 1 has 2 columns and CoNLL-U has 10"),
        ("a.ann", "T1\tPER 0 4\tAnna\n", "BRAT's annotations"),
        ("a.gz", b"", "or set --task.format to one of csv, tsv"),
        ("a.tsv.gz", b"\x1f\x8b\x08\x00", "is damaged or cut short"),
        ("a.json", "[]", "has no 'data': it is an array; expected SQuAD's JSON"),
        ("a.json", '{"data": {}}', "'data' is an object of nothing and in SQuAD's JSON it is an array"),
        ("a.json", '{"data": [{"paragraphs": [{"qas": [{"id": 1}]}]}]}', "article 1, paragraph 1 has no 'context'"),
    ],
)
def test_bad_files_are_refused_in_one_line_with_the_place(tmp_path, name, content, words):
    assert words in refused(tmp_path, name, content)


def test_a_file_that_is_not_there_is_refused(tmp_path):
    with pytest.raises(UsageError, match="absent.tsv can't be read"):
        list(task_records(str(tmp_path / "absent.tsv"), Counter()))
    with pytest.raises(UsageError, match="is a folder; give one file of rows"):
        list(task_records(str(tmp_path), Counter()))
    with pytest.raises(UsageError, match="names no set; expected one like tfds:glue/cola:train"):
        task_records("tfds:glue", Counter())


def test_questions_come_with_their_text(tmp_path):
    first, second = read(tmp_path, "a.json", SQUAD)[0]
    assert first.values | {"answers": 0} == {
        "title": "T",
        "context": "A cat.",
        "question": "Who?",
        "id": "q1",
        "answers": 0,
    }
    assert second.values["is_impossible"] and second.place.endswith("article 1, paragraph 1, question 'q2'")


def test_a_missing_column_is_named_with_those_that_are_there():
    record = Record("f, line 3", {"a": 1, "b": {"c": None, "d": 2}, "e.f": 3})
    assert [record.value(name) for name in ("a", "b.d", "e.f")] == [1, 2, 3]
    assert [record.has(name) for name in ("a", "b.c", "x", "a.b")] == [True, False, False, False]
    with pytest.raises(UsageError, match="f, line 3 has no column 'b.x': there is 'c', 'd'; give rows that have it"):
        record.value("b.x")
    with pytest.raises(
        UsageError, match="if a line holds several columns, name the format by --task.format of finetune$"
    ):
        Record("f, line 2", {"John B-PER": "lives O"}).value("words")


def test_conll_columns_are_sentences_of_words_and_tags(tmp_path):
    found, _ = read(tmp_path, "a.conll", "-DOCSTART-\tO\n\nThe\tO\nU.N.\tB-ORG\n\n\nNew\u00a0York\tB-LOC\n")
    assert [record.values for record in found] == [
        {"words": ["The", "U.N."], "tags": ["O", "B-ORG"]},
        {"words": ["New\u00a0York"], "tags": ["B-LOC"]},
    ]
    assert [record.place.split(", ")[1] for record in found] == ["line 3", "line 7"]


@pytest.mark.parametrize(
    "content, column, words, second_line",
    [
        ("#\tlink [2010]\n1\tAnna\tB-PER\tO\n\n# next\n1\tUlm\tB-LOC\tO\n", "column 2", [["Anna"], ["Ulm"]], 5),
        ("# newdoc\nAnna B-PER\n# again\nsees O\n\nUlm B-LOC\n", "words", [["Anna", "sees"], ["Ulm"]], 6),
    ],
    ids=["with other columns", "with an unknown tag"],
)
def test_comments_of_conll_files_are_skipped_and_counted(tmp_path, content, column, words, second_line):
    found, repairs = read(tmp_path, "a.conll", content)
    assert [record.values[column] for record in found] == words
    assert not any("#" in word for record in found for column in record.values.values() for word in column)
    assert repairs == {"comment lines (with # first) skipped": 2}
    assert [record.place.split(", ")[1] for record in found] == ["line 2", f"line {second_line}"]


@pytest.mark.parametrize("pipe", [False, True])
def test_a_comment_has_a_tag_that_is_nowhere_else_in_the_column_of_tags(tmp_path, pipe):
    """That column may be any, and the tag may be known only later."""
    path, repairs = tmp_path / "a.conll", Counter()
    content = "Anna O Anna\n#Ulm B-LOC #Ulm\n# newdoc Anna\n\n" + "is O be\n\n" * 20_000 + "Ulm B-LOC Ulm\n"
    if pipe:
        os.mkfifo(path)
        threading.Thread(target=path.write_text, args=(content,), daemon=True).start()
    else:
        path.write_text(content)
    found = next(task_records(str(path), repairs, RowFormat(columns=("words", "ner", "lemma"), label="ner")))
    assert found.values["words"] == ["Anna", "#Ulm"] and repairs == {"comment lines (with # first) skipped": 1}


def test_tabs_after_the_last_column_are_dropped_and_counted(tmp_path):
    found, repairs = read(tmp_path, "a.conll", "Anna\tB-PER\t\nsees\tO\n\nUlm\tB-LOC\t\t\n")
    assert [record.values["tags"] for record in found] == [["B-PER", "O"], ["B-LOC"]]
    assert repairs == {"lines whose tabs after the last column were left out": 2}
    settings = {"columns": ("words", "tags", "note")}  # a named column may be empty
    assert values(tmp_path, "a.conll", "Anna\tB-PER\t\n", **settings)[0]["note"] == [""]
    assert "line 2 has 3 columns" in refused(tmp_path, "a.conll", "Anna\tB-PER\nsees\tO\tx\n")


CONLLU = """# text = Vámonos a casa
1-2\tVámonos\t_\t_\t_\t_\t_\t_\t_\t_
1\tVamos\tir\tVERB\tV\t_\t0\troot\t_\t_
2\tnos\tnos\tPRON\tP\t_\t1\tobj\t_\t_
2.1\tsomos\tser\tVERB\tV\t_\t_\t_\t_\t_

# newpar
# text = a\tb
1\ta\ta\tADP\tE\t_\t0\troot\t_\t_
"""


def test_conllu_has_the_words_that_have_tags(tmp_path):
    found, repairs = read(tmp_path, "a.conllu", CONLLU)
    first, second = (record.values for record in found)
    assert repairs == {"lines of multiword tokens or empty nodes left out": 2}
    assert (first["words"], first["upos"], first["xpos"]) == (["Vamos", "nos"], ["VERB", "PRON"], ["V", "P"])
    assert second["words"] == ["a"]
    assert "line 9 has 2 columns" in refused(tmp_path, "a.conllu", CONLLU.replace("# newpar\n", "") + "# a\tb\n")
