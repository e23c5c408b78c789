from collections import Counter

import numpy as np
import pytest

from bert_jax.config.task import TaskConfig
from bert_jax.finetuning.tag_task import TagTask
from bert_jax.finetuning.task import IGNORED
from bert_jax.records.record import Record
from bert_jax.system.errors import UsageError
from bert_jax.text.word_pieces import first_pieces, joined_words

CONFIG = TaskConfig(name="ner", kind="tags", texts=("words",), label="tags", labels=("B-X", "I-X", "O"), max_length=16)
DROPPED = "words without a piece of their own, not learned from"


def record(words, tags=None):
    return Record("f, line 1", {"words": words.split(" ")} | ({"tags": tags.split()} if tags else {}))


def oracle(task, one, **settings):
    """What is predicted where each asked token's logits are those of its tag."""
    train, asked = (task.encode([one], Counter(), train=flag)[0] for flag in (True, False))
    assert [example.sequences for example in train] == [example.sequences for example in asked]
    outputs = [np.eye(len(task.labels))[[max(tag, 0) for tag in example.target]] for example in train]
    return task.predict(one, asked, outputs)["predicted_tags"], train


def test_a_tag_is_asked_at_the_first_piece_of_its_word(wordpiece):
    repairs = Counter()
    [[example]] = TagTask(CONFIG, wordpiece).encode([record("the dogs unseen cat", "O B-X I-X O")], repairs, train=True)
    names = [wordpiece.vocabulary.pieces[number] for number in example.sequences[0].ids]
    assert names == "[CLS] the dog ##s un ##seen cat [SEP]".split()
    assert example.target == [IGNORED, 2, 0, IGNORED, 1, IGNORED, 2, IGNORED] and not +repairs


@pytest.mark.parametrize(
    "words, tags",
    [
        ("the dogs' , cat", "O B-X I-X O"),
        ("unseen unseen dogs", "B-X I-X O"),
        ("cafe\u0301 in café", "B-X O I-X"),
        ("学 大 . the", "B-X I-X O O"),
    ],
)
def test_words_that_are_split_get_their_tags_back(tokenizer, words, tags):
    said, _ = oracle(TagTask(CONFIG, tokenizer), record(words, tags))
    assert said == tags.split()


@pytest.mark.parametrize("dropped", ["\u200b", "\x00\u200d"])
def test_words_that_are_dropped_are_outside(tokenizer, dropped):
    one, repairs = record(f"the {dropped} cat {dropped}", "B-X I-X B-X O"), Counter()
    task = TagTask(CONFIG, tokenizer)
    kept = tokenizer.kind == "byte_bpe"  # which has pieces for all characters
    assert oracle(task, one)[0] == ["B-X", "I-X" if kept else "O", "B-X", "O"]
    task.encode([one], repairs, train=True)
    assert repairs[DROPPED] == (0 if kept else 2)


def test_a_word_that_is_joined_to_the_one_before_has_its_tag(tokenizer):
    one, repairs, task = record("東 京 大 学", "B-X I-X B-X O"), Counter(), TagTask(CONFIG, tokenizer)
    joined = tokenizer.kind != "wordpiece" and len(tokenizer.encode("東京")) < 3
    task.encode([one], repairs, train=True)
    _, first = first_pieces(*joined_words(one.values["words"]), tokenizer)
    own = [place for place, piece in enumerate(first) if piece not in first[:place]]
    assert repairs[DROPPED] == 4 - len(own) and (len(own) < 4) == joined
    said, _ = oracle(task, one)
    assert all(said[place] == (one.values["tags"][place] if place in own else said[place - 1]) for place in range(4))


def test_pieces_are_those_of_the_text_without_spaces_where_none_are_set(tokenizer):
    spans, _ = first_pieces(*joined_words("the cat 大 学 ， 東 京 dogs".split(" ")), tokenizer)
    assert [piece.id for piece in spans] == tokenizer.encode("the cat大学，東京dogs")


def test_a_long_sentence_is_cut_between_words(tokenizer):
    words, tags = "the unseen dogs , old " * 9, "O B-X I-X O O " * 9
    task = TagTask(CONFIG.replace(max_length=12), tokenizer)
    said, parts = oracle(task, record(words.strip(), tags.strip()))
    assert said == tags.split() and len(parts) > 3 and all(example.size <= 12 for example in parts)
    whole = [number for example in parts for number in example.sequences[0].ids[1:-1]]
    assert whole == tokenizer.encode(words.strip())
    asked = sum(tag != IGNORED for example in parts for tag in example.target)
    assert asked == len(said)  # each once


def test_a_word_longer_than_a_sequence_keeps_its_tag(wordpiece):
    task, repairs = TagTask(CONFIG.replace(max_length=8), wordpiece), Counter()
    one = record("the " + "dog" + "s" * 20 + " cat", "O B-X I-X")
    task.encode([one], repairs, train=True)
    assert oracle(task, one)[0] == ["O", "B-X", "I-X"]
    assert repairs["words longer than 8 pieces, cut"] == 1


def test_empty_sentences_are_not_learned_from(wordpiece):
    task, repairs = TagTask(CONFIG, wordpiece), Counter()
    assert task.encode([record("\u200b", "O")], repairs, train=True) == [[]]
    assert repairs["rows with an empty text"] == 1
    [[example]] = task.encode([record("\u200b")], Counter(), train=False)
    assert task.predict(record("\u200b"), [example], [np.zeros((16, 3))]) == {"predicted_tags": ["O"]}


@pytest.mark.parametrize(
    "one, words",
    [
        (record("a b", "O"), "f, line 1 has 2 words and 1 tag; give"),
        (record("a b", "O B-Y"), "f, line 1, word 2: the label 'B-Y' is none of the 3"),
        (record("a b"), "f, line 1 has no column 'tags'"),
    ],
)
def test_tags_that_do_not_fit_are_refused(wordpiece, one, words):
    with pytest.raises(UsageError, match=words):
        TagTask(CONFIG, wordpiece).gold(one)


def test_tags_may_be_numbers_of_the_labels_that_are_given(wordpiece):
    one = Record("f, line 1", {"words": ["a", "b"], "tags": [2, 0]})
    assert TagTask(CONFIG, wordpiece).gold(TagTask.read(CONFIG, one, Counter())) == ["O", "B-X"]
    with pytest.raises(UsageError, match="'tags' has the number 2 for a tag, and --task.labels names 0 tags"):
        TagTask.read(CONFIG.replace(labels=None), one, Counter())


@pytest.mark.parametrize("tag", ["(PERSON*", "(PERSON*)", "(ARG1(V*)", "(12", "[PERSON", "</PERSON>"])
def test_brackets_around_words_are_no_tags(tag):
    unlabelled = CONFIG.replace(labels=None)
    rows = [record("a b c", f"* {tag} *)"), record("a b", "( ,")]
    with pytest.raises(UsageError, match=r"tags like .*are brackets around words, as in CoNLL-2012; write B-PERSON"):
        TagTask.with_labels(unlabelled, rows)
    TagTask.with_labels(unlabelled, [record("a b c", "( * )")])
    assert TagTask.with_labels(unlabelled, [record("a b", "O B-X"), record("a", "I-X")]).labels == ("B-X", "I-X", "O")


@pytest.mark.parametrize("label, warns", [("upos", True), ("feats", False)])
def test_words_without_a_tag_in_a_treebank_are_reported(label, warns, capsys):
    config = CONFIG.replace(labels=None, label=label)
    rows = [Record("f, line 1", {"words": ["a", "b"], label: ["NOUN", "_"]})]
    assert TagTask.with_labels(config, rows).labels == ("NOUN", "_")
    said = " ".join(capsys.readouterr().err.split())
    assert ("1 of 2 words have '_' for upos, which CoNLL-U writes for a word without a tag" in said) == warns


def test_words_and_tags_of_a_table_are_lists_in_json(wordpiece):
    one = Record("f, line 1", {"words": '["a", "20 000"]', "tags": '["O", "B-X"]'})
    read = TagTask.read(CONFIG, one, Counter())
    assert read.values == {"words": ["a", "20 000"], "tags": ["O", "B-X"]}
    assert TagTask(CONFIG, wordpiece).gold(read) == ["O", "B-X"]
