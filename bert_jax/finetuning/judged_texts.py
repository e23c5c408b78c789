"""Texts that people judged for queries: folders of BEIR (Thakur et al. 2021, arXiv:2104.08663).

A folder has `corpus.jsonl` (`_id`, `title`, `text`), `queries.jsonl` (`_id`, `text`) and in `qrels/` a file of BEIR's
or TREC's judgments for each split, each plain, .gz or .zst.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from hashlib import blake2b
from itertools import islice
from typing import TypeGuard

import numpy as np
from jaxtyping import Float

from bert_jax.config.vectors import PASSAGE_ROLES
from bert_jax.finetuning.columns import text
from bert_jax.finetuning.retrieval import RANKED, BestDocuments, bm25_scores, judged_metrics
from bert_jax.finetuning.vectors_task import unit_vectors
from bert_jax.records.decoded_lines import decoded_lines
from bert_jax.records.record import Record
from bert_jax.records.sources import task_records
from bert_jax.run.results import Results
from bert_jax.system.bucket import Place, place_of
from bert_jax.system.content import content_hash
from bert_jax.system.errors import UsageError, listed, quoted

Embed = Callable[[Iterable[str], str], Iterator[Float[np.ndarray, "N D"]]]
"""Yields the vectors of texts of a role, "query" or "document", in their order, some texts at a time."""
_KIND = "beir:"
_LAYOUT = "judged texts are a folder with corpus.jsonl, queries.jsonl and qrels/SPLIT.tsv, each plain, .gz or .zst"
_OF_QUERIES = re.compile(r"arguana|quora", re.IGNORECASE)
"""Names of sets whose queries are documents of the corpus with the same id. Quora's differ in a few characters."""
_GRADE = re.compile(r"-?\d{1,9}")


class JudgedTexts:
    """The judged queries of a split, and the documents, which are read from their file each time."""

    def __init__(self, source: str, usual: str, repairs: Counter[str]):
        """`source`: `beir:FOLDER#SPLIT`, or `beir:FOLDER` for the split `usual`. `repairs` counts what is left out.

        Raises UsageError for a folder that lacks a file or the split, and for files that can't be read.
        """
        path, _, split = source.removeprefix(_KIND).partition("#")
        folder, split = place_of(path), split or usual
        self._corpus, judged = _file(folder, "corpus"), _file(folder / "qrels", split)
        self.name = f"{_KIND}{path}#{split}"
        """The source, with its split."""
        grades = _read_judgments(judged, repairs)
        texts = {name: query for name, query, _ in _rows(_file(folder, "queries"), repairs)}
        self._names = [name for name in texts if name in grades]
        self.queries = [texts[name] for name in self._names]
        self._grades = [grades[name] for name in self._names]
        """For each query, the grades of documents by name."""
        self.documents, corpus_hash = list[str](), blake2b(digest_size=8)
        """The names of the documents, in the order of the corpus."""
        self._copies = set[str]()
        """The names of queries that are documents too. Such a document is left out of its query's ranking."""
        for name, body, title in _rows(self._corpus, repairs):
            self.documents.append(name)
            corpus_hash.update(repr((name, body, title)).encode())
            if name in texts and grades.get(name, {name: 1}).get(name, 0) < 1:
                possible = body.split(), f"{title} {body}".split()
                if texts[name].split() in possible or _OF_QUERIES.search(folder.name):
                    self._copies.add(name)
        known = set(self.documents)
        repairs["documents with the id and text of their query, left out of its ranking"] += len(self._copies)
        if not any(grade > 0 and name in known for of_query in self._grades for name, grade in of_query.items()):
            raise UsageError(
                f"{judged} has no grade above 0 for a query of queries.jsonl and a document of corpus.jsonl; give the "
                "files of one set"
            )
        judged = content_hash((self.queries, [sorted(each.items()) for each in self._grades], len(self.documents)))
        self.content_hash = judged + content_hash(self._names, corpus_hash.hexdigest())
        """Two hashes: of the queries and their judgments, as in earlier releases; and of the queries' names and the
        documents."""
        repairs[f"rows of queries.jsonl without a judgment in {split}, left out"] += len(texts) - len(self.queries)
        repairs["ids of judged queries that queries.jsonl lacks, left out"] += len(grades) - len(self.queries)
        absent = {name for of_query in self._grades for name in of_query} - known
        repairs["ids of judged documents that corpus.jsonl lacks, measured as not found"] += len(absent)
        irrelevant = sum(max(of_query.values()) < 1 for of_query in self._grades)
        repairs["rows of queries.jsonl without a relevant document, measured as 0"] += irrelevant

    @cached_property
    def bm25(self) -> dict[str, float]:
        """The metrics of BM25."""
        best, names = BestDocuments(len(self.queries), RANKED + 1), iter(self.documents)
        for scores in bm25_scores(self.queries, self._documents()):
            best.add([*islice(names, scores.shape[1])], scores)
        return self._metrics(best)

    def pairs(self) -> list[Record]:
        """A row of `finetune vectors` for each query and document with a grade above 0.

        The query's documents with a grade of 0 or below are the row's negatives.
        """
        judged = set[str]().union(*self._grades)
        documents = zip(self.documents, self._documents(), strict=True)
        texts = {name: document for name, document in documents if name in judged}
        records = []
        for query, grades in zip(self.queries, self._grades, strict=True):
            known = {texts[name]: grade for name, grade in grades.items() if name in texts}
            negatives = [document for document, grade in known.items() if grade <= 0]
            row = {"query": query, **({"negatives": negatives} if negatives else {})}
            records += [Record(self.name, row | {"positive": each}) for each, grade in known.items() if grade > 0]
        return records

    def measure(
        self, embed: Embed, widths: Sequence[int] = (), on_read: Callable[[int], None] = lambda documents: None
    ) -> Results:
        """The metrics of `judged_metrics` for a search of the whole corpus by cosines, beside those of BM25.

        `widths`: further widths that vectors are cut to, whose metrics have names like `64/ndcg@10`. `on_read` is
        called with the number of documents compared since the last call. A document that is the query itself is left
        out of its ranking. One block of the corpus' vectors is in memory at a time.
        """
        baseline, metrics = self.bm25, dict[str, float]()
        queries = np.concatenate([*embed(self.queries, "query")])
        cuts = [width for width in widths if width < queries.shape[1]]
        best, names = {width: BestDocuments(len(queries), RANKED + 1) for width in (None, *cuts)}, iter(self.documents)
        for vectors in embed(self._documents(), PASSAGE_ROLES[0]):
            of_block = [*islice(names, len(vectors))]
            for width, documents in best.items():
                documents.add(of_block, unit_vectors(queries[:, :width]) @ unit_vectors(vectors[:, :width]).T)
            on_read(len(vectors))
        for width, documents in best.items():
            metrics |= {f"{width}/{name}" if width else name: value for name, value in self._metrics(documents).items()}
        name, score = next(iter(metrics.items()))
        measured_on = {"rows": len(self.queries), "rows_hash": self.content_hash, "documents": len(self.documents)}
        results = Results(dev_rows=len(self.queries), metric=name, score=score, baseline=baseline)
        return results.updated({**metrics, "baselines": {"bm25": baseline}, "measured_on": measured_on})

    def _metrics(self, best: BestDocuments) -> dict[str, float]:
        copies = [query if query in self._copies else None for query in self._names]
        ranked = zip(copies, best.ranked, strict=True)
        return judged_metrics([[name for _, name in each if name != copy] for copy, each in ranked], self._grades)

    def _documents(self) -> Iterator[str]:
        """Yields each document's title and text, as BEIR joins them."""
        return (f"{title} {body}".strip() for _, body, title in _rows(self._corpus, Counter()))


def is_judged(source: str | None) -> TypeGuard[str]:
    """Whether `source` names judged texts."""
    return source is not None and source.startswith(_KIND)


def _file(folder: Place, name: str) -> Place:
    """The file of this name, before its suffixes, in a folder. Raises UsageError if there is none."""
    if not folder.is_dir():
        raise UsageError(f"there is no folder {folder}; {_LAYOUT}")
    paths = sorted(folder.iterdir(), reverse=True)  # a plain file comes after its packed form
    files = {path.name.partition(".")[0]: path for path in paths if path.is_file()}
    if name not in files:
        there = f" (there is {listed(sorted(files))})" if files else ""
        raise UsageError(f"{folder} has no file {name!r}{there}; {_LAYOUT}")
    return files[name]


def _rows(path: Place, repairs: Counter[str]) -> Iterator[tuple[str, str, str]]:
    """Yields the _id, the text and the title (empty if there is none) of each line.

    Raises UsageError for a line without an _id or a text, and for an _id that occurs twice.
    """
    names = set[str]()
    for record in task_records(str(path), repairs):
        name, body = (text(record, key, "each line needs the texts _id and text") for key in ("_id", "text"))
        if name in names:
            raise UsageError(f"{record.place}: the _id {quoted(name)} occurs twice; leave out one of the lines")
        names.add(name)
        yield name, body, text(record, "title") if "title" in record.values else ""


def _read_judgments(path: Place, repairs: Counter[str]) -> dict[str, dict[str, int]]:
    """The grades of documents for each query, by their names.

    Lines have BEIR's columns, `query-id TAB corpus-id TAB score` below a line of names, or TREC's, `query 0 document
    grade`. Of two lines for a query and a document the later one counts; `repairs` counts those whose grades differ.
    Raises UsageError for a line with other columns.
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
        of_query, document, grade = grades.setdefault(fields[0], {}), fields[-2], int(fields[-1])
        repairs["judgments that a later line changes"] += of_query.get(document, grade) != grade
        of_query[document] = grade
    return grades
