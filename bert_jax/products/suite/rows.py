"""Finds the files that the tasks of a suite name."""

import os
import re
from pathlib import Path

from bert_jax.system.bucket import Place, place_of
from bert_jax.system.errors import UsageError

_COMPRESSED = ("", ".gz", ".zst")
"""Endings that a file of rows may have besides the name in the suite."""
_MOST_FILES = 100_000
"""Maximum number of files and folders among which rows are looked for."""


class RowSearch:
    """The search for the files of a task in the folder `data`, or in the working directory."""

    def __init__(self, data: str | None):
        self.data = data
        self.missing: list[str] = []
        """What wasn't found, in words."""

    def files(self, pattern: str, several: bool = False) -> list[str]:
        """The absolute paths of the files that `pattern` names; `pattern` itself if there are none. `missing` gets a
        note if there are none, or several files and not `several`."""
        places = find_rows(pattern, self.data)
        if not places or len(places) > 1 and not several:
            self.missing.append(f"no {pattern}" if not places else f"{len(places)} files {pattern} instead of one")
        return places or [pattern]

    def rows(self, source: str, usual: str) -> str:
        """A file of rows, or judged texts (`beir:FOLDER`), whose split is `usual` if none is named."""
        if source.startswith("beir:"):
            folder = self.judged(source.removeprefix("beir:"), usual)
            # Test rows are measured as dev rows are, and the usual split of those is dev.
            return f"beir:{folder}#test" if usual == "test" and "#" not in folder else f"beir:{folder}"
        place = self.files(source)[0]
        if os.path.isdir(place):
            self.missing.append(f"a folder {place} instead of a file of rows")
        return place

    def judged(self, source: str, usual: str) -> str:
        """A folder of judged texts, `FOLDER#SPLIT`, which has the files of the split."""
        folder, hash_sign, split = source.partition("#")
        names = ("corpus.jsonl", "queries.jsonl", f"qrels/{split or usual}.tsv")
        corpus, *_ = [self.files(f"{folder}/{name}")[0] for name in names]
        return corpus.rpartition("/")[0] + hash_sign + split

    @property
    def problem(self) -> str:
        """What is missing, and where it was looked for; empty if nothing is."""
        below = "in the working directory; give its folder by --data"
        if self.data:
            below = f"below {place_of(self.data)}, where links to folders aren't followed"
        return f"found {' and '.join(self.missing)} {below}" if self.missing else ""


def find_rows(pattern: str, data: str | None) -> list[str]:
    """The absolute paths of the files, also compressed, or the folder that `pattern` names, in `data` at any depth;
    [] if none is there. Links to folders aren't followed.

    A set of TFDS, or a place in a bucket, is taken as it is.
    """
    if ":" in pattern.partition("/")[0]:
        return [pattern]
    within = data and not os.path.isabs(pattern)
    below = Path(place_of(data)) if data and within else Path("/")
    pattern = re.sub(r"(\*\*/)+", "**/", f"**/{pattern}" if within else str(place_of(pattern))[1:])
    if pattern.count("**/") > 2:  # the search takes the number of folders to this power
        raise UsageError(f"{pattern} has ** more than twice; give a pattern with fewer, or a folder")
    if not within and "**" in pattern:  # a suite's own `data` was counted before
        check_size(below / pattern.partition("**")[0])
    try:
        found = [sorted(below.glob(pattern + ending)) for ending in _COMPRESSED]
        files = next(filter(None, ([str(path) for path in paths if path.is_file()] for paths in found)), [])
        return files or [str(path) for path in found[0] if path.is_dir()]
    except (OSError, ValueError, NotImplementedError, RecursionError):  # what glob raises for what can't be a path
        return []


def check_size(data: Place) -> None:
    """Raises UsageError for a folder with too many files to search."""
    count = 0
    for _, folders, files in os.walk(data):
        if (count := count + len(folders) + len(files)) > _MOST_FILES:
            raise UsageError(f"{data} has more than {_MOST_FILES:,} files to search; give the folder of the rows alone")
