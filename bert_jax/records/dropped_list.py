"""Lists the documents that curation drops, and says how many they are."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Int, UInt8

from bert_jax.config.wording import counted
from bert_jax.records.duplicates import Copies
from bert_jax.records.examination import BatchFiles
from bert_jax.records.filters import ALL_BOILERPLATE, ALL_COPIED, COPY, SETTINGS
from bert_jax.system.errors import UsageError
from bert_jax.system.progress import say

_AT_ONCE = 100_000
"""Documents that are in memory at a time, with about 1 KB each."""


class DroppedDocuments(NamedTuple):
    """The documents that are dropped, and why."""

    files: BatchFiles
    reasons: UInt8[np.ndarray, " N"]
    """Of all documents, why they are dropped (filters.py)."""
    copies: Copies
    names: Sequence[str]
    """The names of the sources."""

    def write(self, path: Path) -> None:
        """Writes a JSON object for each document that is dropped, one a line: its source, number there (from 1), begin
        and the setting that drops it, and of a copy the document that it is a copy of."""
        dropped = np.flatnonzero(self.reasons)
        with open(path, "w", encoding="utf-8") as file:
            for begin in range(0, len(dropped), _AT_ONCE):
                for line in self._lines(dropped[begin : begin + _AT_ONCE]):
                    file.write(json.dumps(line, ensure_ascii=False) + "\n")

    def say(self) -> None:
        """Says of each reason how many documents are dropped for it, with an example."""
        sizes = self.files.joined("sizes")
        for reason, setting in SETTINGS.items():
            dropped = np.flatnonzero(self.reasons == reason)
            if not len(dropped):
                continue
            (example,) = self._lines(dropped[:1])
            of_all = f"{len(dropped):,} of {counted(len(sizes), 'documents')}, {sizes[dropped].sum() / sizes.sum():.2%}"
            why = ", all of whose lines it drops" if reason in (ALL_BOILERPLATE, ALL_COPIED) else ""
            original = f", a copy of document {example['copy_of']['document']}" if reason == COPY else ""
            say(
                f"--{setting.replace('_', '-')} drops {of_all} of the text{why}; for example document "
                f"{example['document']}{original}: {example['begins']!r}"
            )

    def check_sources(self) -> None:
        """Raises UsageError if all documents of a source are dropped."""
        sources, _ = self.files.sources(np.arange(len(self.reasons)))
        for source in np.unique(sources):
            reasons = self.reasons[sources == source]
            if reasons.all():
                settings = " and ".join(SETTINGS[reason] for reason in np.unique(reasons))
                raise UsageError(
                    f"of {self.names[source]}, {settings} would drop all {counted(len(reasons), 'documents')}; change "
                    "these settings, or leave the source out"
                )

    def _lines(self, documents: Int[np.ndarray, " N"]) -> list[dict[str, Any]]:
        lines = self._named(documents)
        as_copies = np.flatnonzero(self.reasons[documents] == COPY)
        places = np.searchsorted(self.copies.documents, documents[as_copies])
        originals = self._named(self.copies.originals[places])
        for number, original, similarity in zip(as_copies, originals, self.copies.similarity[places], strict=True):
            lines[number] |= {"copy_of": original, "similarity": round(float(similarity), 3)}
        for line, reason in zip(lines, self.reasons[documents], strict=True):
            line["dropped_by"] = SETTINGS[reason]
        return lines

    def _named(self, documents: Int[np.ndarray, " N"]) -> list[dict[str, Any]]:
        """How a person recognizes the documents."""
        sources, numbers = self.files.sources(documents)
        begins = self.files.gather("begins", documents)
        return [
            {
                "source": self.names[source],
                "document": int(number) + 1,
                "begins": begin.tobytes().decode(errors="ignore").rstrip(),
            }
            for source, number, begin in zip(sources, numbers, begins, strict=True)
        ]
