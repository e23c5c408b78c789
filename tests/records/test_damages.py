"""Every reader of text and of rows, attacked with damaged files: it reads them, or refuses them in one line."""

import gzip
import json
from collections import Counter

import pyarrow as pa
import pyarrow.parquet
import pytest
import zstandard
from conftest import stories
from damages import attack
from trained_tokenizers import trained
from treebanks import conll, conllu, sentences

from bert_jax.config.data import DataConfig
from bert_jax.config.task import TaskConfig
from bert_jax.finetuning.dataset import read_labelled, read_training
from bert_jax.records.corpus import open_corpus
from bert_jax.records.sources import task_records

COUNT = 25
TEXT = stories(6)
DOCUMENTS = TEXT.strip().split("\n\n")
ROWS = [
    {"id": number, "sentence": text[:60], "label": "yes" if number % 2 else "no"}
    for number, text in enumerate(DOCUMENTS)
]
QUESTIONS = [
    {"id": f"q{number}", "question": "Which cat?", "answers": [{"text": text[4:9], "answer_start": 4}]}
    for number, text in enumerate(DOCUMENTS)
]


def lines(rows) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def table(separator: str) -> bytes:
    return "".join(separator.join(map(str, row)) + "\n" for row in (ROWS[0], *(row.values() for row in ROWS))).encode()


def squad() -> bytes:
    paragraphs = [{"context": text, "qas": [asked]} for text, asked in zip(DOCUMENTS, QUESTIONS)]
    return json.dumps({"version": "2.0", "data": [{"title": "T", "paragraphs": paragraphs}]}).encode()


CORPORA = {
    "text:a.txt": TEXT.encode(),
    "text:a.txt.gz": gzip.compress(TEXT.encode()),
    "text:a.txt.zst": zstandard.compress(TEXT.encode()),
    "jsonl:a.jsonl#page.text": lines({"page": {"text": text}, "id": number} for number, text in enumerate(DOCUMENTS)),
    "jsonl:a.jsonl.gz#text": gzip.compress(lines({"text": text} for text in DOCUMENTS)),
    "parquet:a.parquet#text": {"text": DOCUMENTS, "id": list(range(6))},
    "parquet:b.parquet#page.text": {"page": [{"text": text} for text in DOCUMENTS]},
}
FILES = {
    "a.csv": (table(","), "class"),
    "a.csv.gz": (gzip.compress(table(";")), "class"),
    "a.tsv": (table("\t"), "class"),
    "a.jsonl": (lines(ROWS), "class"),
    "numbers.jsonl": (lines({"sentence": row["sentence"], "label": row["id"]} for row in ROWS), "number"),
    "a.jsonl.zst": (zstandard.compress(lines(ROWS)), "class"),
    "a.json": (squad(), "span"),
    "a.json.gz": (gzip.compress(squad()), "span"),
    "a.conll": (conll(sentences(6)).encode(), "tags"),
    "a.conllu": (conllu(sentences(3)).encode(), "tags"),
}
COLUMNS = {"tags": ("words",), "span": ("question", "context")}
LABELS = {"a.conll": "tags", "a.conllu": "upos", "a.json": "answers", "a.json.gz": "answers"}


@pytest.mark.parametrize("source", CORPORA)
def test_damaged_text_is_read_or_refused_in_one_line(tmp_path, slow, source):
    kind, _, rest = source.partition(":")
    name, _, field = rest.partition("#")
    file = tmp_path / name
    content = CORPORA[source]
    if isinstance(content, dict):
        pyarrow.parquet.write_table(pa.table(content), file)
    else:
        file.write_bytes(content)
    config = DataConfig(source=f"{kind}:{file}" + (f"#{field}" if field else ""))
    assert len(list(open_corpus(config).documents())) == 6

    def read():
        corpus = open_corpus(config)
        for document in corpus.documents():
            "\n".join(document).encode()
        assert 0 <= corpus.position <= corpus.total + 1e-9

    attack(read, file, COUNT * (120 if slow else 1))


@pytest.mark.parametrize("name", FILES)
def test_damaged_rows_are_read_or_refused_in_one_line(tmp_path, slow, name):
    content, kind = FILES[name]
    file = tmp_path / name
    file.write_bytes(content)
    config = TaskConfig(
        name="attacked",
        kind=kind,
        train=str(file),
        dev=str(file),
        texts=COLUMNS.get(kind, ("sentence",)),
        label=LABELS.get(name, "label"),
        max_length=256,
        unlabelled="skip",
    )
    assert list(task_records(str(file), Counter()))

    def read():
        for record in task_records(str(file), Counter()):
            json.dumps(record.values, ensure_ascii=False).encode()
        read_labelled(read_training(config, trained("wordpiece")).task)

    read()
    attack(read, file, COUNT * (120 if slow else 1))
