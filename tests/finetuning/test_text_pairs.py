from collections import Counter
from pathlib import Path

import pytest

from bert_jax.config.task import TaskConfig
from bert_jax.finetuning import text_pairs
from bert_jax.finetuning.text_pairs import pair_records
from bert_jax.instances.held_out import document_hash
from bert_jax.system.errors import UsageError


def sentence(number: int) -> str:
    return f"The cat {number} sees a dog in the old house."


def corpus(path: Path, documents: list[list[str]]) -> str:
    path.write_text("\n\n".join("\n".join(lines) for lines in documents) + "\n", encoding="utf-8")
    return str(path)


def long_documents(count: int) -> list[list[str]]:
    """Documents of 12 sentences, none of which is in two of them."""
    return [[" ".join(sentence(100 * number + part) for part in range(12))] for number in range(count)]


@pytest.fixture
def pairs_of(wordpiece, tmp_path):
    def of(documents: list[list[str]], repairs: Counter[str] | None = None, **changes):
        source = corpus(tmp_path / "corpus.txt", documents)
        settings = {"name": "x", "kind": "vectors", "texts": ("query", "positive"), "source": source}
        config = TaskConfig(**settings | {"max_length": 40, "dev": "dev.jsonl"} | changes)
        learned, held_out = pair_records(config, wordpiece, Counter() if repairs is None else repairs)
        sides = [[(one.values["query"], one.values["positive"]) for one in some] for some in (learned, held_out)]
        return *sides, learned

    return of


def test_neighbours_are_the_text_in_order_and_no_passage_is_in_two_pairs(pairs_of, wordpiece):
    documents = long_documents(2)
    learned, held_out, records = pairs_of(documents)
    assert not held_out  # task.dev names rows
    first = [text for pair in learned[: len(learned) // 2] for text in pair]
    assert len(first) > 4 and " ".join(first) == documents[0][0]
    assert records[0].place.endswith("corpus.txt, document 1") and records[-1].place.endswith("document 2")
    sizes = [len(pieces) + 2 for pieces in wordpiece.encode_batch([text for pair in learned for text in pair])]
    assert 20 <= min(sizes) and max(sizes) <= 40  # passages have most of the length


def test_a_short_document_is_divided_one_sentence_is_counted_and_equal_neighbours_are_no_pair(pairs_of):
    repairs: Counter[str] = Counter()
    learned, *_ = pairs_of([[sentence(1), sentence(2)], [sentence(3)], [sentence(4), sentence(4)]], repairs)
    assert learned == [(sentence(1), sentence(2))]
    assert repairs["documents without two passages left out"] == 1


def test_a_heading_is_no_passage_of_its_own(pairs_of):
    long = "The cat sees a dog, " * 8 + "unseen in the old house."
    (first, _), *_ = pairs_of([["History.", long, *map(sentence, range(4))]])[0]
    assert first == f"History. {long}"


def test_a_title_stands_before_the_passage_after_it(pairs_of):
    long = " ".join(["word"] * 21) + "."
    repairs: Counter[str] = Counter()
    documents = [
        ["Cats", "Life.", sentence(1), sentence(2)],
        [long, sentence(3)],
        ["東" * 21, sentence(4)],
        ["東京大学", sentence(5)],
        ["CHAPTER 1", sentence(6)],
        ["Chapter 1", sentence(7)],
        ["Nothing after it"],
    ]
    learned, *_ = pairs_of(documents, repairs, pairs="title")
    assert [query for query, _ in learned] == ["Cats", "東京大学"]
    assert learned[0][1].startswith(f"Life. {sentence(1)}") and learned[1][1] == sentence(5)
    assert repairs["documents without a title left out"] == 3
    assert repairs["documents with the title of another left out"] == 2


def test_dropout_pairs_are_equal_and_those_to_measure_on_are_neighbours(pairs_of):
    learned, held_out, _ = pairs_of(long_documents(20), pairs="dropout", dev=None)
    assert learned and all(query == positive for query, positive in learned)
    assert held_out and all(query != positive for query, positive in held_out)
    learned, held_out, _ = pairs_of([[sentence(number)] for number in range(20)], pairs="dropout", dev=None)
    assert len(learned) == 20 and not held_out  # of one sentence each


def test_held_out_are_the_documents_of_the_smallest_hashes(pairs_of):
    documents = long_documents(40)
    learned, held_out, _ = pairs_of(documents, dev=None)
    ordered = sorted(documents, key=document_hash)
    assert 0.05 < len(held_out) / (len(held_out) + len(learned)) < 0.16
    chosen = [document[0] for document in ordered[:4]]
    assert all(any(query in text for text in chosen) for query, _ in held_out)
    assert not any(query in text for text in chosen for query, _ in learned)
    assert (learned, held_out) == pairs_of(documents, dev=None)[:2]


def test_the_ends_of_large_documents_are_held_out(pairs_of):
    document = " ".join(sentence(number) for number in range(120))
    learned, held_out, _ = pairs_of([[document]], dev=None)
    assert len(held_out) == (len(held_out) + len(learned)) // 10 > 0
    assert " ".join(text for pair in learned + held_out for text in pair) == document


def test_no_more_are_held_out_than_the_limit(pairs_of, monkeypatch):
    monkeypatch.setattr(text_pairs, "_MOST_HELD_OUT", 5)
    learned, held_out, _ = pairs_of(long_documents(40), dev=None)
    assert len(held_out) == 5 and len(learned) > 50


def test_copies_of_documents_are_left_out(pairs_of):
    repairs: Counter[str] = Counter()
    documents = long_documents(2)
    assert pairs_of([*documents, *documents], repairs)[0] == pairs_of(documents)[0]
    assert repairs["copies of documents left out"] == 2


def test_reading_ends_at_the_limit_and_says_so(pairs_of, monkeypatch, capsys):
    monkeypatch.setattr(text_pairs, "_MOST_PAIRS", 5)
    learned, *_ = pairs_of(long_documents(9))
    assert 5 <= len(learned) < 10
    said = " ".join(capsys.readouterr().err.split())
    assert f"the first 2 documents are used, which have {len(learned)} pairs" in said


@pytest.mark.parametrize(
    ("documents", "settings", "wrong"),
    [
        ([[sentence(1)]], {}, "corpus.txt: no document has two passages"),
        ([[" ".join(["word"] * 30), "b"]], {"pairs": "title"}, "no document begins with a title of its own"),
        ([["Same", "b."], ["Same", "c."]], {"pairs": "title"}, "no document begins with a title of its own"),
        ([[]], {"pairs": "dropout"}, "corpus.txt.* holds no text"),
        ([[]], {"source": "nowhere.txt"}, "no file matches"),
        ([[]], {"source": "jsonl:nowhere.jsonl"}, "--task.source='jsonl:nowhere.jsonl'"),
    ],
)
def test_a_corpus_that_is_not_there_or_without_pairs_is_refused(pairs_of, documents, settings, wrong):
    with pytest.raises(UsageError, match=wrong) as refusal:
        pairs_of(documents, **settings)
    assert "data.source" not in str(refusal.value)


def test_no_held_out_text_is_learned_from(pairs_of):
    documents = long_documents(20)
    repairs: Counter[str] = Counter()
    repeated = [[f"{document[0]} {sentence(7)}"] for document in documents[:10]]
    learned, held_out, _ = pairs_of([*documents, *repeated], repairs, dev=None)
    texts = {text for pair in held_out for text in pair}
    assert held_out and learned and texts.isdisjoint(text for pair in learned for text in pair)
    assert repairs["pairs with a text that is held out left out"] > 0


def test_a_corpus_that_only_repeats_itself_has_nothing_held_out(pairs_of, capsys):
    learned, held_out, _ = pairs_of([[f"{sentence(1)} {sentence(2)} {number}"] for number in range(20)], dev=None)
    assert learned and not held_out and "too few to hold any out" in capsys.readouterr().err
