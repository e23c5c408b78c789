import json
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bert_jax.config.task import TaskConfig
from bert_jax.finetuning.character_spans import characters_of, pieces_of, spans_of, tags_of, word_places
from bert_jax.finetuning.dataset import read_labelled, read_training
from bert_jax.records.record import Record
from bert_jax.system.errors import UsageError

CONFIG = TaskConfig(name="ner", kind="tags", texts=("text",), label="spans", max_length=48)


def row(text, spans):
    return Record("f, line 1", {"text": text, "spans": spans})


def converted(text, spans):
    repairs = Counter()
    return tags_of(row(text, spans), "spans", text, repairs), +repairs


@pytest.mark.parametrize(
    "text, words",
    [
        ("Jan O'Neil (Ulm).", ["Jan", "O", "'", "Neil", "(", "Ulm", ")", "."]),
        (" \tin\u00a0New  York\n", ["in", "New", "York"]),
        ("東京dogs，cafe\u0301 हिन्दी", ["東", "京", "dogs", "，", "cafe\u0301", "हिन्दी"]),
        (" ", []),
    ],
)
def test_words_are_split_at_spaces_punctuation_and_ideographs(text, words):
    assert [text[begin:end] for begin, end in word_places(text)] == words


@given(st.text(alphabet="ab. 東", max_size=12), st.data())
def test_entities_of_whole_words_come_back(text, data):
    places, spans, first = word_places(text), [], 0
    while first < len(places):
        last = data.draw(st.integers(first, len(places) - 1))
        kind = data.draw(st.sampled_from(["X", "Y", None]))
        if kind:
            spans.append([places[first][0], places[last][1], kind])
        first = last + 1
    tags, repairs = converted(text, spans)
    assert spans_of(tags, places) == spans and not repairs


def test_spans_within_words_are_extended_and_counted():
    extended = "spans with an end within a word, extended to whole words"
    assert converted("the dogs run", [[3, 8, "X"]]) == (["O", "B-X", "O"], {})  # with a space
    lost, spans = "spans without a word of their own, left out", [[4, 6, "X"], [6, 8, "Y"], [8, 9, "Y"]]
    assert converted("the dogs run", spans) == (["O", "B-X", "O"], {extended: 1, lost: 2})


@pytest.mark.parametrize(
    "spans, words",
    [
        ([[4, 12, "X"], [0, 8, "Y"]], r"f, line 1: the spans \[0, 8, 'Y'\] and \[4, 12, 'X'\] in 'spans' overlap"),
        ([[0, 13, "X"]], r"f, line 1: 'spans' has \[0, 13, 'X'\] and the text 12 characters; give the entities of"),
        ([[3, 3, "X"]], "and the text 12 characters"),
        ([[-1, 3, "X"]], "and the text 12 characters"),
        ("B-PER", "a file with one word on each line is --task.format conll"),
        ([[0, 3, ""]], r"as .* from 0 \(an emoji is one\), or a list of words and their tags"),
        ([{"start": 0, "end": 3}], r"has \{'start'"),
        ([[0.0, 3, "X"]], "has"),
        ("[[0, 3]]", "has"),
        (["O", "O", "B-X"], "has 'O' and the text 12 characters"),
        ([{"start": 4, "end": 8, "label": "X", "text": "run"}], "a span with the text 'run', and its place has 'dogs'"),
        ([{"start": 4, "end": 7, "label": "X", "text": "dogs"}], "the text 'dogs', and its place has 'dog'"),
        ("[(0, 3, 'X')]", r"'spans' is the text \"\[\(0, 3, 'X'\)\]\", a list as a program prints it"),
    ],
)
def test_spans_that_can_not_be_are_refused_in_one_line_with_the_row(spans, words):
    with pytest.raises(UsageError, match=words) as refusal:
        converted("the dogs run", spans)
    assert "\n" not in str(refusal.value)


UNITS = "offsets in UTF-16 units (as JavaScript counts), converted to characters"


@pytest.mark.parametrize(
    "text, span, tags, repairs",
    [
        ("👍 the dogs", (7, 11, "dogs"), ["O", "O", "B-X"], {UNITS: 1}),
        ("👍 the dogs", (6, 10, "dogs"), ["O", "O", "B-X"], {}),
        ("👍 the dogs", (6, 10, "Dogs "), ["O", "O", "B-X"], {}),
        ("𝕒𝕓 東京", (5, 7, "東京"), ["O", "B-X", "I-X"], {UNITS: 1}),
        # the span covers the next word exactly, if its offsets count characters
        ("🎉🎉🎉🎉 Ann Bob", (9, 12, "Ann"), ["O", "B-X", "O"], {UNITS: 1}),
    ],
)
def test_a_span_is_compared_with_its_own_text(text, span, tags, repairs):
    begin, end, copy = span
    for one in ({"start": begin, "end": end, "label": "X", "text": copy}, {"start_offset": begin, "end_offset": end}):
        tagged = converted(text, [{"labels": ["X"], "text": copy} | one])
        assert tagged == (tags, repairs)


@pytest.mark.parametrize("key", ["text", "word", "surface", "surface_form", "mention", "string"])
def test_the_text_of_a_span_may_have_several_names(key):
    span = {"start": 4, "end": 8, "label": "X"}
    assert converted("the café run", [span | {key: "cafe\u0301"}])[0] == ["O", "B-X", "O"]
    with pytest.raises(UsageError, match="a span with the text 'run', and its place has 'café'"):
        converted("the café run", [span | {key: "run"}])


def test_spans_in_utf16_units_without_a_text_are_said():
    said = "spans whose ends are ends of words in UTF-16 units (as JavaScript counts) alone: convert them"
    assert converted("👍 the dogs", [[3, 6, "X"]])[1] == {said: 1}
    assert not converted("the 👍 dogs", [[0, 3, "X"]])[1]


def with_rows(tmp_path, *rows):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"text": text, "spans": spans}) + "\n" for text, spans in rows))
    return CONFIG.replace(train=str(path), dev=str(path))


def test_rows_with_character_spans_are_learned_measured_and_predicted(tmp_path, tokenizer, capsys):
    text = "the cat sees dogs , unseen"
    config = with_rows(tmp_path, (text, [[4, 7, "X"], [13, 26, "Y"]]), ("where ?", []), ("the dog", [[4, 6, "Y"]]))
    task = read_training(config, tokenizer).task
    assert task.config.character_spans and task.config.labels == ("O", "B-X", "I-X", "B-Y", "I-Y")
    measured = read_labelled(task)
    assert measured.golds == [["O", "B-X", "O", "B-Y", "I-Y", "I-Y"], ["O", "O"], ["O", "B-Y"]]
    assert "rows.jsonl: 1 span with an end within a word" in capsys.readouterr().err
    record = Record("row 1", {"text": text})
    [examples] = task.encode([record], Counter(), train=False)
    logits = np.zeros((examples[0].size, 5))
    for word, place in examples[0].origin.items():
        logits[place, task.labels.number(measured.golds[0][word], "")] = 1
    said = task.predict(record, examples, [logits])
    assert said["predicted_spans"] == [[4, 7, "X"], [13, 26, "Y"]] and said["predicted_tags"] == measured.golds[0]
    assert said["predicted_words"] == text.split()
    assert task.measure(measured.golds[:1], [said]).metrics["entity_f1"] == 1.0
    assert list(task.predict(Record("row 1", {"text": text.split()}), examples, [logits])) == ["predicted_tags"]


def test_types_may_be_given_as_labels(tmp_path, wordpiece):
    config = with_rows(tmp_path, ("the cat", [[4, 7, "Y"]]))
    for labels in (("Y", "X"), ("O", "B-Y", "I-Y", "B-X", "I-X")):
        task = read_training(config.replace(labels=labels), wordpiece).task
        assert task.config.labels == ("O", "B-Y", "I-Y", "B-X", "I-X")
    with pytest.raises(UsageError, match="the label 'B-Y' is none of the 5 that are known"):
        read_training(config.replace(labels=("X", "Z")), wordpiece)


TEXTS = [
    ("the cat sees dogs.", "cat sees"),
    ("in 東京大学, where", "大学"),
    ("a cafe\u0301 in the house", "cafe\u0301"),
    ("a café in", "café"),
    ("the cafe\u0301", "cafe\u0301"),
    ("a\u200b  cat\x00 sees", "cat"),
    ("𝒳 the cat", "the"),
    ("İ cat", "cat"),
]


@pytest.mark.parametrize("text, answer", TEXTS)
def test_characters_become_pieces_and_the_same_characters_again(tokenizer, text, answer):
    spans, begin = tokenizer.encode_spans(text), text.index(answer)
    assert [piece.id for piece in spans] == tokenizer.encode(text)
    found = pieces_of(spans, begin, begin + len(answer))
    assert text[slice(*characters_of(text, spans, found.start, found.stop - 1))] == answer


def test_characters_without_pieces_have_none_and_a_part_of_a_piece_is_all_of_it(tokenizer, wordpiece):
    spans = tokenizer.encode_spans("cat \u200b\u200b dog")
    assert bool(pieces_of(spans, 4, 6)) == (tokenizer.kind == "byte_bpe")  # which has pieces for all characters
    assert pieces_of(spans, 3, 8)
    spans = wordpiece.encode_spans("the dogs")
    assert pieces_of(spans, 5, 6) == range(1, 2) and pieces_of(spans, 7, 8) == range(2, 3)
