"""Examines documents batch by batch: what filters refuse, and the keys by which copies are found, in a file each."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int, Shaped
from safetensors import numpy as safetensors
from safetensors import safe_open

from bert_jax.config.data import DataConfig
from bert_jax.records.corpus import Document
from bert_jax.records.drops import check_lines, first_place, source_of
from bert_jax.records.equal_keys import Items, Keys
from bert_jax.records.filters import refusals
from bert_jax.records.signatures import digests, minhashes
from bert_jax.system.files import replacing
from bert_jax.text.text_spans import plain

PARAGRAPH_CHARACTERS = 64
"""Shortest line that is compared with those of other documents as a paragraph: headings recur in many documents."""
BEGIN_BYTES = 96
"""Bytes of a document's begin that are kept, by which a person recognizes it."""
_BATCH_BYTES = 4_000_000
_REPEATED = 3
"""Documents of a batch from which on a line is counted as a candidate for boilerplate, with its text."""
_MOST_REPEATED = 200
"""Most such lines of a batch."""


class Batch(NamedTuple):
    """Consecutive documents of a portion."""

    source: int
    """Index of the source."""
    place: int
    """The place of the first line (bert_jax/records/drops.py)."""
    documents: list[Document]


class BatchSummary(NamedTuple):
    """What the examination of a batch returns, besides its file."""

    documents: int
    lines: int
    """Keys of lines in the file."""
    repeated: Counter[str]
    """Lines in several of the documents, with the number of these."""


def batches(documents: Iterable[Document], source: int, portion: int) -> Iterator[Batch]:
    """Cuts the documents of a portion into batches of about 4 MB."""
    place = first = first_place(source, portion)
    waiting: list[Document] = []
    size = 0
    for document in documents:
        waiting.append(document)
        size += sum(map(len, document))
        if size >= _BATCH_BYTES:
            yield Batch(source, place, waiting)
            place += sum(map(len, waiting))
            waiting, size = [], 0
    if waiting:
        yield Batch(source, place, waiting)
    check_lines(place + sum(map(len, waiting)) - first)


def examine(batch: Batch, data: DataConfig, directory: Path) -> BatchSummary:
    """Writes what `BatchFile` reads of a batch into `directory`."""
    documents = [[*map(plain, document)] for document in batch.documents]
    texts = ["\n".join(document) for document in documents]
    begins = b"".join(" ".join(text[:BEGIN_BYTES].split()).encode()[:BEGIN_BYTES].ljust(BEGIN_BYTES) for text in texts)
    arrays: dict[str, Any] = {
        "places": batch.place + np.cumsum([0, *map(len, documents)], dtype=np.uint64)[:-1],
        "sizes": np.array([len(text.encode()) for text in texts], np.uint32),
        "begins": np.frombuffer(begins, np.uint8).reshape(-1, BEGIN_BYTES),
        "refusals": refusals(texts, data, batch.source),
    }
    if data.deduplicate:
        arrays["signatures"] = (minhashes if data.deduplicate == "near" else digests)(texts)
    repeated = Counter[str]()
    if data.compares_lines:
        keys, places, of_document = _lines(documents, batch.place, repeated)
        arrays |= {"line_keys": keys, "line_places": places, "line_documents": of_document}
    with replacing(directory / f"{batch.place:016x}") as temporary:
        safetensors.save_file(arrays, temporary)
    common = {line: count for line, count in repeated.most_common(_MOST_REPEATED) if count >= _REPEATED}
    return BatchSummary(len(documents), len(arrays.get("line_places", ())), Counter(common))


def line_key(line: str) -> bytes:
    """A hash of 128 bits, of which the last says whether the line is long enough to be compared as a paragraph."""
    digest = blake2b(line.encode(errors="surrogatepass"), digest_size=16).digest()
    return digest[:-1] + bytes([digest[-1] & 0xFE | (len(line) >= PARAGRAPH_CHARACTERS)])


def are_paragraphs(keys: Keys) -> Shaped[np.ndarray, " N"]:
    """Whether each line is long enough to be compared as a paragraph, by its key."""
    return (keys.view(np.uint8)[:, -1] & 1).astype(bool)


def _lines(
    documents: Sequence[Document], place: int, repeated: Counter[str]
) -> tuple[Keys, Items, Int[np.ndarray, " N"]]:
    """The key, place and document of each line; of equal lines of a document only one. Counts documents by line
    in `repeated`."""
    keys: list[bytes] = []
    places: list[int] = []
    of_document: list[int] = []
    for number, document in enumerate(documents):
        distinct = {line: at for at, line in enumerate(document, place)}
        repeated.update(distinct.keys())
        keys += map(line_key, distinct)
        places += distinct.values()
        of_document += [number] * len(distinct)
        place += len(document)
    joined = np.frombuffer(b"".join(keys), np.uint32).reshape(-1, 4)
    return joined, np.array(places, np.uint64), np.array(of_document, np.int64)


class BatchFiles:
    """The files of all batches. Documents are numbered through them in the order of their text."""

    def __init__(self, directory: Path):
        self._paths = sorted(path for path in directory.iterdir() if path.name[0] != ".")  # of a worker that died
        self.ends = np.cumsum([0, *(len(self.read(number, "sizes")) for number in range(len(self)))])
        """Numbers of the documents with which each batch begins, and at last of all documents."""
        self._sources = np.array([source_of(int(path.name, 16)) for path in self._paths])

    def __len__(self) -> int:
        return len(self._paths)

    def sources(self, documents: Int[np.ndarray, " N"]) -> tuple[Int[np.ndarray, " N"], Int[np.ndarray, " N"]]:
        """The source of each document, and its number there, from 0."""
        sources = self._sources[self._batches(documents)]
        return sources, documents - self.ends[np.searchsorted(self._sources, sources)]

    def read(self, batch: int, name: str) -> Shaped[np.ndarray, "..."]:
        """An array of a batch: places, sizes, begins and refusals of its documents, line_keys, line_places and
        line_documents of its lines."""
        with safe_open(self._paths[batch], "numpy") as file:
            return file.get_tensor(name)

    def joined(self, name: str) -> Shaped[np.ndarray, "..."]:
        """An array of small numbers of all documents."""
        return np.concatenate([self.read(batch, name) for batch in range(len(self))])

    def keys(self, band: int) -> Iterator[tuple[Keys, Items]]:
        """Yields the keys of one band, and the documents' numbers, for each batch."""
        for batch, path in enumerate(self._paths):
            with safe_open(path, "numpy") as file:
                yield file.get_slice("signatures")[band], np.arange(*self.ends[batch : batch + 2], dtype=np.uint64)

    def gather(self, name: str, documents: Int[np.ndarray, " N"], axis: int = 0) -> Shaped[np.ndarray, "..."]:
        """The entries of these documents in an array whose `axis` is that of documents."""
        order = np.argsort(documents, kind="stable")
        batch_of = self._batches(documents[order])
        parts = [
            self.read(batch, name).take(documents[order[batch_of == batch]] - self.ends[batch], axis)
            for batch in np.unique(batch_of)
        ]
        return np.concatenate(parts, axis).take(np.argsort(order), axis) if parts else self.read(0, name).take([], axis)

    def _batches(self, documents: Int[np.ndarray, " N"]) -> Int[np.ndarray, " N"]:
        return np.searchsorted(self.ends, documents, "right") - 1
