"""The source `hf:NAME/CONFIG:SPLIT#FIELD`: a dataset of the Hugging Face hub or a folder, streamed by `datasets`."""

import importlib
import os
import re
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from types import ModuleType

from bert_jax.records.decoded_lines import Pass
from bert_jax.records.record import Record
from bert_jax.records.source import Source
from bert_jax.system.content import content_hash
from bert_jax.system.errors import UsageError, check_installed, first_line

HF_PLACE = re.compile(r"([^:#]+):([^:#\[\]]+)#(.+)")
"""NAME/CONFIG:SPLIT#FIELD. NAME is a folder or OWNER/SET of the hub, with an optional /CONFIG; SPLIT has no slice."""
_FIRST_VERSION = 4
"""First major version of `datasets` that never runs code from a dataset."""
_REMEDY = (
    "name OWNER/SET or OWNER/SET/CONFIG of the hub (this needs a network, or HF_HUB_OFFLINE=1 and the dataset in the "
    "cache), or a folder of .jsonl, .parquet or .txt files"
)


class HfSource(Source):
    """The rows of a split."""

    unit = "records"

    def __init__(self, name: str, split: str, field: str):
        """Opens the split. `field` is a column, or with dots a field of a nested object: `a.b`.

        Raises UsageError if `datasets` isn't installed, or if the dataset or the split doesn't exist.
        """
        self.name, self._split, self.field = f"hf:{name}:{split}", split, field
        library, (path, config) = _library(), _path_and_config(os.path.expanduser(name))
        try:
            builder = library.load_dataset_builder(path, config)
            self._rows = builder.as_streaming_dataset(split=split)
        except Exception as error:  # exceptions of the library and the hub, ValueError, OSError, ...
            raise UsageError(f"{self.name} can't be opened ({first_line(error)}); {_REMEDY}") from None
        self._files = list(map(str, (builder.config.data_files or {}).get(split, [])))
        """Paths and URLs of the split's files."""
        sizes = {file: os.stat(file) for file in self._files if os.path.isfile(file)}
        counted = (builder.info.splits or {}).get(split)
        self.total = (counted and counted.num_examples) or 0
        if not self.total:  # the metadata have no row count
            self.unit, self.total = "MB", max(sum(status.st_size for status in sizes.values()) / 1e6, 1e-6)

    @cached_property
    def content_hash(self) -> str:
        """Hash of the names and contents of local files, and of the URLs of others, which name the commit."""
        files = [Path(file) if os.path.isfile(file) else file for file in self._files]
        return content_hash(self._split, self.field, *files)

    def records(self, progress: Pass) -> Iterator[Record]:
        """Yields the rows. Raises UsageError if a file is damaged, or the network fails."""
        number = 0
        try:
            for row in self._rows:
                progress.position = min(number + 1 if self.unit == "records" else progress.text_bytes / 1e6, self.total)
                yield Record(f"{self.name}, record {number}", row)
                number += 1
        except Exception as error:  # raised by the readers below `datasets`: Arrow, JSON, the network
            raise UsageError(
                f"{self.name}: record {number:,} can't be read ({first_line(error)}); a file is damaged, or the "
                "network is gone"
            ) from None


def _library() -> ModuleType:
    """Imports `datasets` and silences it.

    Raises UsageError if it is missing, or so old that it may run code that comes with a dataset.
    """
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    check_installed("hf: sources are read by the library datasets", "datasets", "hf")
    library = importlib.import_module("datasets")
    if int(library.__version__.partition(".")[0]) < _FIRST_VERSION:
        raise UsageError(
            f"datasets {library.__version__} is installed, which may run code that comes with a dataset; install "
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
