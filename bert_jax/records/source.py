"""The interface of all sources of foreign records, whatever stores them."""

from collections.abc import Iterator, Sequence

from bert_jax.records.decoded_lines import Pass
from bert_jax.records.record import Record


class Source:
    """Records of files, of a data set or of the installed Python. Every pass yields the same records in the same order.

    Subclasses set the attributes that have no value here.
    """

    name: str
    """The source for a message."""
    unit: str
    """Unit of `total` and of a pass' position, such as MB or records."""
    total: float
    """Size of the whole source, in `unit`."""
    field: str = ""
    """The field of the records that holds the text of a corpus; it may be nested, with dots: `a.b`."""
    number: int = 0
    """For a portion of another source: its number there."""
    has_ranges: bool = False
    """Whether the source is a sample that consists of ranges of files."""

    @property
    def content_hash(self) -> str:
        """Hash of the files' names and contents. Sources with equal records may have different hashes."""
        raise NotImplementedError

    def records(self, progress: Pass) -> Iterator[Record]:
        """Yields all records, with at least `field` if there is one, as str, bytes or null; advances `progress`.

        Raises UsageError if the source is damaged.
        """
        raise NotImplementedError

    def document_lines(self, progress: Pass) -> Iterator[str] | None:
        """The stripped lines of plain text, with an empty line after each document; None if records are documents."""
        return None

    def portions(self, portion_bytes: int) -> Sequence["Source"]:
        """The portions of the source, in order. Each is cut into chunks by itself."""
        return [self]

    def sampled(self, most_bytes: int) -> "Source":
        """A sample of about `most_bytes` if parts of the source can be read alone, otherwise the whole source."""
        return self
