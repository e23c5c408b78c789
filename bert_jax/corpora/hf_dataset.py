"""The source `hf:NAME/CONFIG:SPLIT#FIELD`: a dataset of the Hugging Face hub or a folder, streamed by `datasets`."""

import importlib
import itertools
import os
import re
from collections.abc import Iterator
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from types import ModuleType
from typing import Any

from bert_jax.corpora.shown import kind_of, listed, reason_of
from bert_jax.corpora.text_source import TextSource
from bert_jax.system.errors import UsageError, install_extra

_PLACE = re.compile(r"(?P<name>[^:#]+):(?P<split>[^:#\[\]]+)#(?P<field>.+)")
"""NAME is a folder or OWNER/SET of the hub, with an optional /CONFIG; SPLIT has no slice."""
_FIRST_VERSION = 4
"""First major version of `datasets` that never runs code from a dataset."""
_END_BYTES = 1 << 12
_REMEDY = (
    "name OWNER/SET or OWNER/SET/CONFIG of the hub, which needs a network or HF_HUB_OFFLINE=1 and a set in the cache, "
    "or a folder of .jsonl, .parquet or .txt files"
)


def hf_place(text: str) -> tuple[str, str, str] | None:
    """Name, split and field of NAME/CONFIG:SPLIT#FIELD, or None if `text` doesn't have this form."""
    found = _PLACE.fullmatch(text)
    return found and found.group("name", "split", "field")


class HfDataset(TextSource):
    """One text field of a split: each row is a document. Rows without text (null or only white space) are skipped."""

    unit = "records"

    def __init__(self, name: str, split: str, field: str, undecodable: str, document_bytes: int):
        """Opens the split and reads its first row. `field` is a column, or with dots a field of a nested object: `a.b`.

        Raises UsageError if `datasets` isn't installed, or if the dataset, the split or the field doesn't exist.
        """
        super().__init__(undecodable, document_bytes)
        self._name, self._split, self._field = f"hf:{name}:{split}", split, field
        library, (path, config) = _library(), _path_and_config(os.path.expanduser(name))
        try:
            self._builder = library.load_dataset_builder(path, config)
            self._rows = self._builder.as_streaming_dataset(split=split)
        except Exception as error:  # the library's and the hub's own, ValueError, OSError, ...
            raise UsageError(f"{self._name} can't be opened ({reason_of(error)}); {_REMEDY}") from None
        counted = (self._builder.info.splits or {}).get(split)
        self.total = (counted and counted.num_examples) or 0
        if not self.total:  # the metadata have no row count
            self.unit, self.total = "MB", max(sum(map(_size, self._files)) / 1e6, 1e-6)
        times = [(file, os.stat(file).st_mtime_ns if os.path.isfile(file) else None) for file in self._files]
        self.revision = blake2b(repr(times).encode(), digest_size=8).hexdigest()
        next(self._texts(), None)  # raises if the first row lacks the field

    @cached_property
    def stamp(self) -> str:
        """Hash of the name, size and both ends of local files, and of the URLs of others, which contain the commit."""
        described = (self._split, self._field, list(map(_described, self._files)))
        return blake2b(repr(described).encode(), digest_size=8).hexdigest()

    @property
    def _files(self) -> list[str]:
        """Paths and URLs of the split's files."""
        return list(map(str, (self._builder.config.data_files or {}).get(self._split, [])))

    def _lines(self) -> Iterator[str]:
        read = 0
        for number, text in self._texts():
            read += len(text)
            done = number + 1 if self.unit == "records" else read / 1e6
            self.position = min(done, self.total)
            yield from self._record_lines(text, f"{self._name}, record {number}, {self._field!r}")

    def _texts(self) -> Iterator[tuple[int, bytes]]:
        """Yields each row's number, from 0, and text. Raises UsageError if a row can't be read or lacks the field."""
        rows = iter(self._rows)
        for number in itertools.count():
            try:
                row = next(rows, None)
            except Exception as error:  # raised by the readers below `datasets`: Arrow, JSON, the network
                raise UsageError(
                    f"{self._name}: record {number:,} can't be read ({reason_of(error)}); a file is damaged, or the "
                    "network is gone"
                ) from None
            if row is None:
                return
            # A lone surrogate isn't valid UTF-8: pass it on, to be handled like other undecodable bytes.
            yield number, self._text(row, f"{self._name}, record {number}").encode(errors="surrogatepass")

    def _text(self, row: Any, place: str) -> str:
        value = row
        for name in self._field.split("."):
            if value is None:
                break
            if not isinstance(value, dict):
                raise UsageError(f"{place} has no field {self._field!r}: it is {kind_of(value)}; name another after #")
            if name not in value:
                raise UsageError(
                    f"{place} has no field {self._field!r}: there is {listed(value)}; name another after #"
                )
            value = value[name]
        if not isinstance(value, str | None):
            raise UsageError(
                f"{place}: {self._field!r} is {kind_of(value)} and not a string; name another field after #"
            )
        return value or ""


def _library() -> ModuleType:
    """Imports `datasets` and silences it. Raises UsageError if it is missing, or so old that it runs datasets' code."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    try:
        library = importlib.import_module("datasets")
    except ImportError:
        raise UsageError(
            f"hf: sources are read by the library datasets, which is not installed; {install_extra('hf')}"
        ) from None
    if int(library.__version__.partition(".")[0]) < _FIRST_VERSION:
        raise UsageError(
            f"datasets {library.__version__} is installed, which may run code that comes with a set; install "
            f"{_FIRST_VERSION}.0 or newer"
        )
    library.disable_progress_bars()
    library.logging.set_verbosity_error()
    return library


def _path_and_config(name: str) -> tuple[str, str | None]:
    """Splits `name` into the folder or OWNER/SET and the configuration. Raises UsageError if the folder is missing."""
    above, _, last = name.rpartition("/")
    if Path(name).is_dir():
        return name, None
    if (Path(above) / "README.md").is_file():  # a folder's README.md lists its configurations
        return above, last
    if name.startswith(("/", ".", "~")):
        raise UsageError(f"hf:{name} is no folder; {_REMEDY}")
    return (above, last) if above.count("/") == 1 else (name, None)


def _size(file: str) -> int:
    return os.path.getsize(file) if os.path.isfile(file) else 0


def _described(file: str) -> tuple:
    if not os.path.isfile(file):
        return (file,)
    size = os.path.getsize(file)
    with open(file, "rb") as raw:
        ends = [raw.read(_END_BYTES), raw.seek(max(size - _END_BYTES, 0)), raw.read()]
    return os.path.basename(file), size, ends
