import gzip
from collections import Counter

import numpy as np
import pytest
from judged_folders import DOCUMENTS, JUDGMENTS, QUERIES, write_judged_folder, write_lines

from bert_jax.finetuning import retrieval
from bert_jax.finetuning.dataset import LabelledRows
from bert_jax.finetuning.judged_texts import JudgedTexts
from bert_jax.finetuning.retrieval import BestDocuments, bm25_scores, judged_metrics
from bert_jax.records.record import Record
from bert_jax.system.errors import UsageError

MEASURES = {"ndcg_cut_10": "ndcg@10", "recall_100": "recall@100", "recip_rank": "mrr@10"}


@pytest.fixture
def folder(tmp_path):
    return write_judged_folder(tmp_path / "set")


def opened(folder, split="test") -> JudgedTexts:
    return JudgedTexts(f"beir:{folder}", split, Counter())


def by_trec_eval(judgments: dict, run: dict) -> dict[str, float]:
    """The mean metrics of pytrec_eval; of the reciprocal rank only the first ten documents of each query count."""
    pytrec_eval = pytest.importorskip("pytrec_eval")
    measured = pytrec_eval.RelevanceEvaluator(judgments, {"ndcg_cut.10", "recall.100"}).evaluate(run)
    first = {}
    for query, scores in run.items():
        order = sorted(scores, key=lambda name: (np.float32(scores[name]), name), reverse=True)
        first[query] = {name: scores[name] for name in order[:10]}
    for query, ranks in pytrec_eval.RelevanceEvaluator(judgments, {"recip_rank"}).evaluate(first).items():
        measured[query] |= ranks
    return {ours: float(np.mean([one[name] for one in measured.values()])) for name, ours in MEASURES.items()}


@pytest.mark.parametrize("seed, block", [(1, 7), (2, 400)])
def test_metrics_are_those_of_pytrec_eval_with_grades_and_ties(seed, block):
    drawn = np.random.default_rng(seed)
    names = [f"d{number}" for number in drawn.permutation(250)]
    scores = drawn.integers(0, 12, (20, 250)) / 8 + np.where(drawn.random((20, 250)) < 0.3, 1e-9, 0)
    judged = {
        f"q{query}": {names[place]: int(drawn.integers(-1, 4)) for place in drawn.permutation(250)[:30]}
        for query in range(20)
    }
    judged["q0"] = dict.fromkeys(judged["q0"], 0)  # no relevant document
    judged["q1"]["unknown"] = 2
    best = BestDocuments(20, 101)
    for begin in range(0, 250, block):
        best.add(names[begin : begin + block], scores[:, begin : begin + block])
    found = [[name for _, name in ranked] for ranked in best.ranked]
    run = {f"q{query}": dict(zip(names, row.tolist(), strict=True)) for query, row in enumerate(scores)}
    assert judged_metrics(found, list(judged.values())) == pytest.approx(by_trec_eval(judged, run), abs=1e-12)


def test_what_is_no_number_is_never_ranked():
    best = BestDocuments(2, 2)
    best.add("abc", np.array([[np.nan, 1.0, -np.inf], [0.0, 2.0, 1.0]]))
    assert best.ranked == [[(1.0, "b")], [(2.0, "b"), (1.0, "c")]]


def vectors_of(texts) -> np.ndarray:
    """Counts of a few letters: equal texts have equal vectors."""
    return np.array([[text.count(letter) for letter in "aeiotdr"] for text in texts], np.float32)


def embed(texts, role):
    texts = list(texts)
    yield vectors_of(texts[:4])
    yield vectors_of(texts[4:])


def test_a_folder_is_searched_as_beir_does(folder):
    repairs = Counter()
    judged = JudgedTexts(f"beir:{folder}", "test", repairs)
    texts = [f"{title or ''} {text}".strip() for title, text in DOCUMENTS.values()]
    read = []
    results = judged.measure(
        lambda texts, role: embed(texts, role) if role == "document" else [vectors_of(texts)], (3,), read.append
    )
    judgments = {}
    for query, document, grade in JUDGMENTS:
        judgments.setdefault(query, {})[document] = grade
    for prefix, width in (("", 7), ("3/", 3)):
        queries, documents = (vectors_of(some)[:, :width] for some in (QUERIES.values(), texts))
        unit = [some / np.linalg.norm(some, axis=1, keepdims=True) for some in (queries, documents)]
        run = {
            query: {name: float(score) for name, score in zip(DOCUMENTS, row, strict=True) if name != query}
            for query, row in zip(QUERIES, unit[0] @ unit[1].T, strict=True)
        }
        expected = by_trec_eval(judgments, run)
        assert {name: results.metrics[f"{prefix}{name}"] for name in expected} == pytest.approx(expected)
    assert results.metric == "ndcg@10" and results.score == results.metrics["ndcg@10"] and results.dev_rows == 3
    assert results.baselines == {"bm25": judged.bm25} and read == [4, 2]
    assert +repairs == {
        "rows of queries.jsonl without a judgment in test, left out": 1,
        "ids of judged documents that corpus.jsonl lacks, measured as not found": 1,
        "documents with the id and text of their query, left out of its ranking": 1,
    }


@pytest.mark.parametrize(
    "name, query, document, grade, left_out",
    [
        ("numbers", "a cat", "a dog", 1, False),  # the numbers of queries and documents are unrelated
        ("numbers", "a cat", "a dog", 0, False),
        ("numbers", "a  cat", "a cat", 0, True),
        ("numbers", "a cat", "a cat", 1, False),
        ("nano-ArguAna", "a cat", "a cat, that is", 0, True),
    ],
)
def test_a_document_with_the_id_of_its_query_is_left_out_only_if_it_is_the_query(
    tmp_path, name, query, document, grade, left_out
):
    folder, repairs = tmp_path / name, Counter()
    (folder / "qrels").mkdir(parents=True)
    write_lines(folder / "queries.jsonl", [{"_id": "0", "text": query}])
    documents = {"0": document, "1": "a cat sleeps"}
    write_lines(folder / "corpus.jsonl", [{"_id": key, "text": text} for key, text in documents.items()])
    write_lines(folder / "qrels" / "test.tsv", [f"0 0 0 {grade}", "0 0 1 1"])
    judged = JudgedTexts(f"beir:{folder}", "test", repairs)
    vectors = {query: [1.0, 0.0], document: [1.0, 0.1], "a cat sleeps": [1.0, 1.0]}
    results = judged.measure(lambda texts, role: [np.array([vectors[text] for text in texts], np.float32)])
    first = 0.5 if grade == 0 and not left_out else 1.0
    assert results.metrics["mrr@10"] == first
    assert repairs["documents with the id and text of their query, left out of its ranking"] == left_out


def test_bm25_is_that_of_all_words_and_ranks_only_texts_with_a_common_word(folder, monkeypatch):
    queries, documents = list(QUERIES.values()), [text for _, text in DOCUMENTS.values()]
    counts = retrieval._word_counts([*queries, *documents], retrieval._all_words([*queries, *documents]))
    dense = (counts[:4] @ retrieval._bm25_weights(counts[4:]).T).toarray()
    assert (dense == 0).any()
    for characters, at_once in ((1_000_000, 2048), (30, 4)):
        monkeypatch.setattr(retrieval, "_CHARACTERS_AT_ONCE", characters)
        monkeypatch.setattr(retrieval, "DOCUMENTS_AT_ONCE", at_once)
        scores = np.concatenate(list(bm25_scores(queries, iter(documents))), axis=1)
        assert scores == pytest.approx(np.where(dense > 0, dense, -np.inf))


def test_pairs_are_the_relevant_documents_with_the_others_as_negatives(folder):
    judged, rain = opened(folder), "Rain Rain falls on the house all day."
    assert judged.pairs() == [
        Record(judged.name, {"query": "the dog", "negatives": [rain], "positive": "Cats The old cat sees the dog."}),
        Record(
            judged.name, {"query": "the dog", "negatives": [rain], "positive": "Boats A boat on the river, and a dog."}
        ),
        Record(judged.name, {"query": "a house by the river", "positive": "A quiet house near the river."}),
        Record(judged.name, {"query": "old letters", "positive": rain}),
    ]


def test_judgments_of_trec_and_packed_files_are_read_too(folder):
    expected = opened(folder)
    words = expected.bm25
    write_lines(folder / "qrels" / "trec.txt", [f"{query} 0 {name} {grade}" for query, name, grade in JUDGMENTS])
    for path in (folder / "corpus.jsonl", folder / "queries.jsonl", folder / "qrels" / "test.tsv"):
        (folder / f"{path.relative_to(folder)}.gz").write_bytes(gzip.compress(path.read_bytes()))
        path.unlink()
    packed, trec = opened(folder), JudgedTexts(f"beir:{folder}#trec", "test", Counter())
    assert packed.content_hash == trec.content_hash == expected.content_hash and packed.bm25 == trec.bm25 == words
    assert (packed.name, trec.name) == (f"beir:{folder}#test", f"beir:{folder}#trec")
    write_judged_folder(folder, [*JUDGMENTS[:-1], ("q3", "d5", 2)])
    assert opened(folder).content_hash != expected.content_hash


@pytest.mark.parametrize(
    "file, before, after",
    [
        ("corpus.jsonl", "river, and a dog", "river, and a cat"),
        ("corpus.jsonl", '"d5"', '"d9"'),
        ("corpus.jsonl", "{", '{"_id": "d9", "text": "Nobody judged this."}\n{'),  # outside all pairs
        ("queries.jsonl", '"q3"', '"q8"'),
        ("queries.jsonl", "old letters", "old lettres"),
        ("qrels/test.tsv", "\t2\n", "\t1\n"),
    ],
)
def test_another_content_changes_the_hash_of_the_rows(folder, file, before, after):
    def rows_hash() -> str:
        return LabelledRows([], (), opened(folder)).content_hash

    expected, path = rows_hash(), folder / file
    assert expected == rows_hash() and before in path.read_text()
    path.write_text(path.read_text().replace(before, after, 1))
    assert rows_hash() != expected


@pytest.mark.parametrize(
    "file, lines, words",
    [
        ("corpus.jsonl", None, "set has no file 'corpus' (there is 'queries'); judged texts are a folder with"),
        ("corpus.jsonl", [], "no grade above 0 for a query of queries.jsonl and a document of corpus.jsonl"),
        ("corpus.jsonl", ["{"], "corpus.jsonl, line 1 is not JSON that can be read"),
        ("corpus.jsonl", [{"id": "a", "text": "b"}], "no column '_id': there is 'id', 'text'; each line needs"),
        ("corpus.jsonl", [{"_id": "a", "text": ["b"]}], "line 1: 'text' is an array and not a text"),
        ("corpus.jsonl", [{"_id": "a", "text": "b"}] * 2, "line 2: the _id 'a' occurs twice"),
        ("queries.jsonl", [{"_id": "z", "text": "b"}], "test.tsv has no grade above 0 for a query of queries.jsonl"),
        ("qrels/test.tsv", ["q1\td1\t0", "q2\tgone\t1"], "test.tsv has no grade above 0"),
        ("qrels/test.tsv", ["query\tid", "q1\td1"], "test.tsv, line 1 is 'query\\tid'; expected the columns query-id,"),
        ("qrels/test.tsv", ["q1\td1\t1", "q1\td3\t0.5"], "test.tsv, line 2 is 'q1\\td3\\t0.5'; expected the columns"),
        ("qrels/test.tsv", ["q1 Q0 d1 1 0.5 run"], "line 1 is 'q1 Q0 d1 1 0.5 run'; expected"),
    ],
)
def test_wrong_folders_are_refused(folder, file, lines, words):
    (folder / file).unlink()
    if lines is not None:
        write_lines(folder / file, lines)
    with pytest.raises(UsageError) as refusal:
        opened(folder)
    assert words in str(refusal.value) and "\n" not in str(refusal.value)


def test_the_later_of_two_grades_counts_and_is_said(folder):
    (query, document, grade), repairs = JUDGMENTS[-1], Counter[str]()
    write_judged_folder(folder, [*JUDGMENTS[:-1], (query, document, grade + 1), *JUDGMENTS[-1:], *JUDGMENTS[-1:]])
    found = JudgedTexts(f"beir:{folder}", "test", repairs).content_hash
    assert found == opened(write_judged_folder(folder)).content_hash
    assert repairs["judgments that a later line changes"] == 1


def test_a_split_or_folder_that_is_not_there_is_refused(folder):
    write_judged_folder(folder, split="dev")
    with pytest.raises(UsageError, match=r"qrels has no file 'train' \(there is 'dev', 'test'\); judged texts"):
        opened(folder, "train")
    with pytest.raises(UsageError, match="there is no folder .*other"):
        opened(folder.parent / "other")
