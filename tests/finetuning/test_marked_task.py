from collections import Counter

import pytest

from bert_jax.config.task import TaskConfig
from bert_jax.finetuning.marked_task import MarkedTask
from bert_jax.records.record import Record
from bert_jax.system.errors import UsageError

CONFIG = TaskConfig(
    name="wic",
    kind="marked",
    texts=("sentence1", "sentence2"),
    marks=("start1", "end1", "start2", "end2"),
    labels=("false", "true"),
    max_length=12,
)


def record(first, second, words=("dogs", "cat"), **values):
    starts = [text.index(word) for text, word in zip((first, second), words)]
    offsets = {"start1": starts[0], "end1": starts[0] + len(words[0])}
    offsets |= {"start2": starts[1], "end2": starts[1] + len(words[1])}
    return Record("f, line 1", {"sentence1": first, "sentence2": second, "label": True} | offsets | values)


def marked(tokenizer, example):
    ids = example.sequences[0].ids
    return [" ".join(tokenizer.vocabulary.pieces[number] for number in ids[begin:end]) for begin, end in example.marks]


def test_marked_words_are_found_among_the_pieces(tokenizer):
    task = MarkedTask(CONFIG, tokenizer)
    [[example]] = task.encode([record("old dogs", "the cat.")], Counter(), train=True)
    said = [
        text.replace("\u2581", "").replace("\u0120", "").replace("##", "").replace(" ", "")
        for text in marked(tokenizer, example)
    ]
    assert said == ["dogs", "cat"] and example.target == 1
    ids = example.sequences[0].ids
    assert ids[example.sequences[0].first_length - 1] == ids[-1] == tokenizer.vocabulary.sep_id


def test_a_long_text_keeps_what_is_around_its_word(wordpiece):
    task, repairs = MarkedTask(CONFIG, wordpiece), Counter()
    before, after = "the old house in " * 3, " the new house in" * 3
    for text in ("dogs" + after, before + "dogs" + after, before + "dogs"):
        [[example]] = task.encode([record(text, text.replace("dogs", "cat"))], repairs, train=True)
        assert marked(wordpiece, example) == ["dog ##s", "cat"] and len(example.sequences[0].ids) == 12
    assert +repairs == {"sequences longer than 12 pieces, cut": 3}


def test_of_a_phrase_longer_than_what_is_kept_the_kept_part_is_marked(wordpiece):
    phrase = "the old house in " * 5
    for words in ((phrase, "cat"), ("cat", phrase), (phrase, phrase)):
        one = record(*(f"dog {word} dog" for word in words), words=words)
        [[example]] = MarkedTask(CONFIG, wordpiece).encode([one], Counter(), train=False)
        for word, said in zip(words, marked(wordpiece, example)):
            assert said and said in word


def test_offsets_may_be_texts_and_a_dropped_word_is_counted(wordpiece):
    task, repairs = MarkedTask(CONFIG, wordpiece), Counter()
    [[example]] = task.encode([record("a dogs", "cat", start1="2", end1="6")], repairs, train=True)
    assert marked(wordpiece, example) == ["dog ##s", "cat"]
    assert repairs["offsets given as texts, read as numbers"] == 2
    dropped = record("a \u200b", "cat", words=("\u200b", "cat"))
    assert task.encode([dropped], repairs, train=True) == [[]]
    assert task.encode([dropped], repairs, train=False)[0][0].marks == ((0, 1), (3, 4))
    assert repairs["rows whose marked word has no piece"] == 2


@pytest.mark.parametrize("offsets", [{"start1": -1}, {"end1": 99}, {"start1": 6}, {"start1": 3, "end1": 3}])
def test_marks_outside_of_the_text_are_refused(wordpiece, offsets):
    with pytest.raises(UsageError, match="f, line 1: the marked word is at characters .* of a text of 6"):
        MarkedTask(CONFIG, wordpiece).encode([record("a dogs", "cat", **offsets)], Counter(), train=False)
