"""A small folder of BEIR, with what such folders may hold: equal documents, grades, names of other documents."""

import json
from pathlib import Path

DOCUMENTS = {
    "d1": ("Cats", "The old cat sees the dog."),
    "d2": ("", "A quiet house near the river."),
    "d10": ("Cats", "The old cat sees the dog."),  # equal scores: d2, d10, d1 in descending order of names
    "d3": ("Boats", "A boat on the river, and a dog."),
    "q3": (None, "old letters"),
    "d5": ("Rain", "Rain falls on the house all day."),
}
QUERIES = {"q1": "the dog", "q2": "a house by the river", "q3": "old letters", "q4": "nobody judged this"}
JUDGMENTS = [("q1", "d1", 2), ("q1", "d3", 1), ("q1", "d5", 0), ("q2", "d2", 1), ("q2", "gone", 3), ("q3", "d5", 1)]
"""`gone` is no document; the document q3 is that of the query of the same name."""


def write_lines(path: Path, rows) -> None:
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))


def write_judged_folder(folder: Path, judgments=JUDGMENTS, split: str = "test") -> Path:
    """Writes the documents and queries, and the judgments as BEIR has them; returns the folder."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    titles = {name: {} if title is None else {"title": title} for name, (title, _) in DOCUMENTS.items()}
    write_lines(folder / "corpus.jsonl", [{"_id": n, **titles[n], "text": t} for n, (_, t) in DOCUMENTS.items()])
    write_lines(
        folder / "queries.jsonl", [{"_id": name, "text": text, "metadata": {}} for name, text in QUERIES.items()]
    )
    rows = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in judgments)]
    write_lines(folder / "qrels" / f"{split}.tsv", rows)
    return folder
