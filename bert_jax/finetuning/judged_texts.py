"""Texts that people judged for queries: folders of BEIR (Thakur et al. 2021, arXiv:2104.08663).

A folder has `corpus.jsonl` (`_id`, `title`, `text`), `queries.jsonl` (`_id`, `text`) and in `qrels/` a file of BEIR's
or TREC's judgments for each split, each plain, .gz or .zst.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from typing import TypeGuard

import numpy as np
from jaxtyping import Float

from bert_jax.config.vectors import PASSAGE_ROLES
from bert_jax.finetuning.retrieval import BestDocuments, bm25_scores, judged_metrics
from bert_jax.finetuning.vectors_task import unit_vectors
from bert_jax.records.compressed_files import SUFFIXES
from bert_jax.records.decoded_lines import decoded_lines
from bert_jax.records.record import Record
from bert_jax.records.source import short_hash
from bert_jax.records.sources import task_records
from bert_jax.run.results import Results
from bert_jax.system.bucket import Place, place_of
from bert_jax.system.errors import UsageError, json_kind, listed, quoted

Embed = Callable[[Iterable[str], str], Iterator[Float[np.ndarray, "N D"]]]
"""Yields the vectors of texts of a role, "query" or "document", in their order, some texts at a time."""
_KIND = "beir:"
_LAYOUT = "a folder of BEIR has corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv, each plain, .gz or .zst"
_GRADE = re.compile(r"-?\d{1,9}")


class JudgedTexts:
    """The judged queries of a split, and the documents, which are read from their file each time.

    Documents have numbers: their places in the descending order of their names, which is that of equal scores in
    trec_eval. Judged documents that the corpus lacks have numbers below -1.
    """

    def __init__(self, source: str, usual: str, repairs: Counter[str]):
        """`source`: `beir:FOLDER#SPLIT`, or `beir:FOLDER` for the split `usual`. `repairs` counts what is left out.

        Raises UsageError for a folder that lacks a file or the split, and for files that can't be read.
        """
        path, _, split = source.removeprefix(_KIND).partition("#")
        folder, split = place_of(path), split or usual
        self._corpus, judged = _file(folder, "corpus.jsonl"), _judgments_file(folder, split)
        self.name = f"{_KIND}{path}#{split}"
        """The source, with its split."""
        grades = _read_judgments(judged)
        texts = {name: text for name, text, _ in _rows(_file(folder, "queries.jsonl"), repairs)}
        queries = [name for name in texts if name in grades]
        self.queries = [texts[name] for name in queries]
        names = [name for name, _, _ in _rows(self._corpus, repairs)]
        if not names:
            raise UsageError(f"{self._corpus} has no document; {_LAYOUT}")
        places = {name: number for number, name in enumerate(sorted(names, reverse=True))}
        self.numbers = np.array([places[name] for name in names])
        """Numbers of the documents, in the order of the corpus."""
        self._own = [places.get(name, -1) for name in queries]
        unknown = sorted({name for query in queries for name in grades[query]} - places.keys())
        places |= {name: -2 - number for number, name in enumerate(unknown)}
        self._grades = [{places[name]: grade for name, grade in grades[query].items()} for query in queries]
        """For each query, the grades of documents by number."""
        if not any(number >= 0 and of_query[number] > 0 for of_query in self._grades for number in of_query):
            raise UsageError(
                f"{judged} has no grade above 0 for a query of queries.jsonl and a document of corpus.jsonl; give the "
                "files of one set"
            )
        repairs[f"rows of queries.jsonl without a judgment in {split}, left out"] += len(texts) - len(queries)
        repairs["ids of judged queries that queries.jsonl lacks, left out"] += len(grades) - len(queries)
        repairs["ids of judged documents that corpus.jsonl lacks, measured as not found"] += len(unknown)
        repairs["rows of queries.jsonl without a relevant document, measured as 0"] += sum(
            max(of_query.values()) < 1 for of_query in self._grades
        )

    @cached_property
    def stamp(self) -> str:
        """Hash of the queries, their judgments and the number of documents."""
        return short_hash((self.queries, [sorted(grades.items()) for grades in self._grades], len(self.numbers)))

    @cached_property
    def bm25(self) -> dict[str, float]:
        """The metrics of BM25."""
        best = BestDocuments(self._own, self.numbers)
        for scores in bm25_scores(self.queries, self._documents()):
            best.add(scores)
        return judged_metrics(best.found, self._grades)

    def pairs(self) -> list[Record]:
        """A row of `finetune vectors` for each query and document with a grade above 0.

        The query's other judged documents are the row's negatives.
        """
        judged = {number for grades in self._grades for number in grades}
        documents = zip(self.numbers.tolist(), self._documents(), strict=True)
        texts = {number: text for number, text in documents if number in judged}
        records = []
        for query, grades in zip(self.queries, self._grades, strict=True):
            known = {texts[number]: grade for number, grade in grades.items() if number in texts}
            negatives = [text for text, grade in known.items() if grade <= 0]
            row = {"query": query, **({"negatives": negatives} if negatives else {})}
            records += [Record(self.name, row | {"positive": text}) for text, grade in known.items() if grade > 0]
        return records

    def measure(
        self, embed: Embed, widths: Sequence[int] = (), on_read: Callable[[int], None] = lambda documents: None
    ) -> Results:
        """The metrics of `judged_metrics` for a search of the whole corpus by cosines, beside those of BM25.

        `widths`: further widths that vectors are cut to, whose metrics have names like `64/ndcg@10`. `on_read` is
        called with the number of documents compared since the last call. As in BEIR, the document with the name of a
        query is left out of its ranking. One block of the corpus' vectors is in memory.
        """
        baseline, metrics = self.bm25, dict[str, float]()
        queries = np.concatenate([*embed(self.queries, "query")])
        cuts = [width for width in widths if width < queries.shape[1]]
        best = {width: BestDocuments(self._own, self.numbers) for width in (None, *cuts)}
        for vectors in embed(self._documents(), PASSAGE_ROLES[0]):
            for width, documents in best.items():
                documents.add(unit_vectors(queries[:, :width]) @ unit_vectors(vectors[:, :width]).T)
            on_read(len(vectors))
        for width, documents in best.items():
            measured = judged_metrics(documents.found, self._grades)
            metrics |= {f"{width}/{name}" if width else name: value for name, value in measured.items()}
        measured_on = {"rows": len(self.queries), "rows_hash": self.stamp, "documents": len(self.numbers)}
        return Results.model_validate(
            {"dev_rows": len(self.queries), "metric": next(iter(metrics)), "score": next(iter(metrics.values()))}
            | {**metrics, "baseline": baseline, "baselines": {"bm25": baseline}, "measured_on": measured_on}
        )

    def _documents(self) -> Iterator[str]:
        """Yields each document's title and text, as BEIR joins them."""
        return (f"{title} {text}".strip() for _, text, title in _rows(self._corpus, Counter()))


def is_judged(source: str | None) -> TypeGuard[str]:
    """Whether `source` names judged texts."""
    return source is not None and source.startswith(_KIND)


def _file(folder: Place, name: str) -> Place:
    """The file `name` of the folder, plain or compressed. Raises UsageError if there is none."""
    for path in (folder / f"{name}{end}" for end in ("", *SUFFIXES)):
        if path.is_file():
            return path
    raise UsageError(f"{folder} has no {name}; {_LAYOUT}" if folder.is_dir() else f"there is no folder {folder}")


def _judgments_file(folder: Place, split: str) -> Place:
    """The file of judgments of a split. Raises UsageError if there is none."""
    qrels = folder / "qrels"
    paths = sorted(qrels.iterdir(), reverse=True) if qrels.is_dir() else []  # a plain file before its packed form
    splits = {path.name.partition(".")[0]: path for path in paths if path.is_file()}
    if split not in splits:
        there = listed(sorted(splits))
        raise UsageError(f"{qrels} has no split {split!r}: there is {there}; name one as in {_KIND}FOLDER#test")
    return splits[split]


def _rows(path: Place, repairs: Counter[str]) -> Iterator[tuple[str, str, str]]:
    """Yields the _id, text and title of each line. Raises UsageError for a line without them, and an _id that occurs
    twice."""
    names = set[str]()
    for record in task_records(str(path), repairs):
        name, text, title = (record.values.get(key) for key in ("_id", "text", "title"))
        name, title = str(name) if type(name) is int else name, title or ""
        if not (isinstance(name, str) and isinstance(text, str) and isinstance(title, str)):
            key = "_id" if not isinstance(name, str) else "title" if isinstance(text, str) else "text"
            kind = json_kind(record.values[key]) if key in record.values else "missing"
            raise UsageError(f"{record.place}: {key!r} is {kind}; expected the texts _id, text and title")
        if name in names:
            raise UsageError(f"{record.place}: the _id {quoted(name)} stands twice; leave out one of the lines")
        names.add(name)
        yield name, text, title


def _read_judgments(path: Place) -> dict[str, dict[str, int]]:
    """The grades of documents for each query, by their names.

    Lines have BEIR's columns, `query-id TAB corpus-id TAB score` below a line of names, or TREC's, `query 0 document
    grade`. Raises UsageError for a line with others, and for two grades of one document.
    """
    grades: dict[str, dict[str, int]] = {}
    for number, line in enumerate(decoded_lines(path), 1):
        fields = line.rstrip("\r\n").split("\t") if "\t" in line else line.split()
        if not line.strip() or (number == 1 and len(fields) == 3 and not _GRADE.fullmatch(fields[-1])):
            continue  # the line of names
        if len(fields) not in (3, 4) or not _GRADE.fullmatch(fields[-1]):
            raise UsageError(
                f"{path}, line {number} is {quoted(line.strip())}; expected the columns query-id, corpus-id and score "
                "with tabs between them, or TREC's query, 0, document and grade, the last a whole number"
            )
        query, document, grade = fields[0], fields[-2], int(fields[-1])
        if grades.setdefault(query, {}).setdefault(document, grade) != grade:
            raise UsageError(
                f"{path}, line {number} grades document {quoted(document)} for query {quoted(query)} again, and "
                "differently; leave out one of the lines"
            )
    return grades
