"""The errors that a user sees, each as one line with a remedy, and the conversion of disk errors."""

import contextlib
import copyreg
import difflib
import errno
import json
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path
from typing import Any

_CONSTRAINTS = Path(__file__).parents[2] / "launch/constraints.txt"
"""File of the tested versions of all packages; only a checkout has it."""
_PASSWORD = re.compile(r"(?<=://)[^/@\s]*:[^/@\s]*(?=@)|(?<=http://)[^/@\s]+(?=@)|(?<=https://)[^/@\s]+(?=@)")
"""Pattern of USER:PASSWORD in a URL, or of a token in that place of a web address."""
_TOKEN = re.compile(r"(?<=[?&])((?:sig|signature|token|access_token|password|X-Amz-Signature)=)[^&\s]+", re.IGNORECASE)
"""Pattern of a secret in the query of a URL, such as the signature of Azure's links."""
OUT_OF_MEMORY = "RESOURCE_EXHAUSTED"
"""The status of XLA that says that a device has no memory left."""
_MOST_CHARACTERS = 60
"""Maximum characters of a value in an error message."""
_MOST_NAMES, _LONGEST_REASON = 10, 200
"""Maximum names in a list, and maximum characters of another library's message."""
_MOST_SHOWN = 2000
"""Maximum characters of a message."""
_LONG_WORD = re.compile(r"\S{401,}")
"""A path or name that is cut in a message."""
_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Control characters except tab and line feed, since a terminal takes the text after them for a command. Also Unicode's
line separators, the marks of direction, which change the order of the rest of the line, and halves of surrogate pairs,
which can't be printed."""


class Setting(str):
    """A setting in a message, spelled as its flag: `--data.source`, or with a value `--model.num-heads=7`; a truth
    value gives `--data.packed` or `--data.no-packed`."""

    def __new__(cls, name: str, value: object = ...) -> "Setting":
        """`name`: its dotted name. `value`: the value to show; an ellipsis if none is shown."""
        group, dot, last = name.replace("_", "-").rpartition(".")
        if value is ... or isinstance(value, bool):
            return super().__new__(cls, f"--{group}{dot}{'no-' * (value is False)}{last}")
        words = " ".join(map(str, value)) if isinstance(value, tuple) else value
        return super().__new__(cls, f"--{group}{dot}{last}={words}")


def message_line(message: str) -> str:
    """`message` on one line, and cut."""
    message = _LONG_WORD.sub(lambda word: _cut(word[0], 400), on_one_line(message))
    return _cut(message, _MOST_SHOWN)


def _cut(text: str, most: int) -> str:
    """`text` without its middle if it has more than `most` characters: a message ends with its remedy."""
    return text if len(text) <= most else f"{text[: most // 2]}...{text[-most // 4 :]}"


def printable(text: str) -> str:
    """`text` with control characters and marks of direction as escapes such as \\x1b and \\u202e."""
    return _CONTROLS.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


def on_one_line(text: str) -> str:
    """`text` as `printable` gives it, with line feeds and tabs as escapes too."""
    return printable(text).replace("\n", "\\n").replace("\t", "\\t")


def quoted(value: object) -> str:
    """The `repr` of a value for an error message, on one line and cut after 60 characters. A value without one, such as
    a number of thousands of digits, is given by its type."""
    if isinstance(value, str) and len(value) > _MOST_CHARACTERS:
        return f"{value[:_MOST_CHARACTERS]!r}..."
    try:
        text = repr(value)
    except (ValueError, RecursionError):
        text = f"<{type(value).__name__}>"
    return text if len(text) <= _MOST_CHARACTERS + len("''") else shortened(text)


def shortened(text: str, most: int = _MOST_CHARACTERS) -> str:
    """The first `most` characters of a text, followed by dots if there are more."""
    return text if len(text) <= most else f"{text[:most]}..."


def listed(names: Iterable[object]) -> str:
    """The first ten of `names`, quoted, followed by the number of the others."""
    return first_of(list(names), _MOST_NAMES, text=quoted) or "nothing"


def first_of(values: Sequence[object], most: int, separator: str = ", ", text: Callable[[object], str] = str) -> str:
    """The first `most` of `values`, each as `text` gives it, followed by the number of the others."""
    more = f" and {len(values) - most:,} more" if len(values) > most else ""
    return separator.join(map(text, values[:most])) + more


def did_you_mean(word: str, names: Iterable[str], otherwise: str = "", cutoff: float = 0.6) -> str:
    """The question whether the most similar of `names` is meant; `otherwise` if none is as similar as `cutoff`, from
    0 to 1."""
    close = difflib.get_close_matches(word, list(names), 1, cutoff)
    return f"did you mean {close[0]}?" if close else otherwise


def json_kind(value: object) -> str:
    """The type of a JSON value, in JSON's terms; for an object also its names."""
    if isinstance(value, dict):
        return f"an object of {listed(value)}"
    return {list: "an array", str: "a string", bool: "a truth value", type(None): "null"}.get(type(value), "a number")


def command_line(*words: object) -> str:
    """The words of a command as a line for a shell, quoted if needed: a path may contain blanks or `$(...)`."""
    return shlex.join(map(str, words))


def without_passwords(text: str) -> str:
    """`text` with *** in place of the user, the password and secrets in the query of each URL."""
    return _TOKEN.sub(r"\1***", _PASSWORD.sub("***", text))


def is_out_of_memory(error: object) -> bool:
    """Whether an error of JAX, or its message, says that a device has no memory left."""
    return OUT_OF_MEMORY in str(error)


class BertJaxError(Exception):
    """Base class of the errors that a user sees. The message names the value, what was expected, and the remedy."""

    exit_code = 1

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles any subclass, whatever its constructor takes: an error of another process arrives as it was."""
        return copyreg.__newobj__, (type(self), *self.args), vars(self)  # type: ignore[attr-defined]

    def __str__(self) -> str:
        """The message on one line."""
        return message_line(super().__str__())


class UsageError(BertJaxError):
    """A setting, a flag, an argument, a path or an input file is wrong. Exit code of commands: 2."""

    exit_code = 2


class RunError(BertJaxError):
    """Something failed during the run: a full disk, a damaged file, a loss that stays infinite. Exit code of commands:
    1."""


class HostLost(BertJaxError):
    """Another process of the run died or can't be reached. Exit code 134, like that of a process that JAX aborts for
    this."""

    exit_code = 134

    def __init__(self, reason: str, doing: str):
        """`reason`: JAX' error message. `doing`: what this process was doing."""
        super().__init__(
            f"another host of this run was lost or didn't come ({reason}), while this one was {doing}; start the "
            "command again on all hosts: it goes on from the last checkpoint"
        )


class Interrupted(BertJaxError):
    """A signal stopped the run; a checkpoint was written first. Exit code of commands: 143."""

    exit_code = 143


def first_line(error: BaseException | str) -> str:
    """The first line of a library's message, cut after 200 characters; the name of its exception if it has none."""
    line = next(filter(None, map(str.strip, str(error).splitlines())), type(error).__name__)
    return shortened(line, _LONGEST_REASON)


def nothing_at(path: os.PathLike, expected: str) -> UsageError:
    """The error for a `path` where nothing is. `expected`: what to give instead, such as "a run"."""
    return UsageError(f"there is nothing at {os.fspath(path)}; give {expected}")


def install_extra(name: str) -> str:
    """The command that installs an extra: in a checkout, or else from the place that this package was installed from,
    which pip notes in direct_url.json (PEP 610)."""
    if _CONSTRAINTS.is_file():
        return f'pip install -c launch/constraints.txt -e ".[{name}]"'
    place = {}
    with contextlib.suppress(PackageNotFoundError, ValueError):
        place = json.loads(distribution("bert_jax").read_text("direct_url.json") or "{}")
    system, commit = (place.get("vcs_info", {}).get(key) for key in ("vcs", "commit_id"))
    address = f"{system}+{place['url']}@{commit}" if system else place.get("url", "")
    return f'pip install "bert_jax[{name}]{" @ " * bool(address)}{address}"'


def check_installed(need: str, module: str, extra: str) -> None:
    """Raises UsageError if `module`, which the extra installs, is missing. `need` begins the message, as "a report
    needs vl-convert"."""
    spec = find_spec(module)
    if spec is None or spec.origin is None:  # a folder of that name, as wandb makes, has no origin
        raise UsageError(f"{need}, which isn't installed; {install_extra(extra)}")


FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""The error numbers of a full disk, an exceeded quota and an exceeded limit on file sizes."""

_REMOUNT = "make its disk or server available again"
_REMEDIES = {
    errno.ENOSPC: "free some space or choose another place",
    errno.EDQUOT: "free some of your quota or choose another place",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
    errno.EROFS: "mount that file system for writing or choose another place",
    errno.EPERM: "lift what forbids it (lsattr shows what is immutable) or choose another place",
    errno.EACCES: "give yourself the permission (ls -ld shows who has it) or choose another place",
    errno.EIO: "look for messages about that disk (dmesg) or choose another place",
    errno.ENOENT: "put back what was deleted or moved meanwhile",
    errno.ENAMETOOLONG: "choose a shorter path",
    errno.ELOOP: "mend the symbolic links in this path",
    errno.ENOTDIR: "a file stands where a folder is needed: move it or choose another place",
    errno.EISDIR: "a folder stands where a file is needed: move it or choose another place",
    errno.EMFILE: "raise the limit on open files (ulimit -n)",
    errno.ENFILE: "have the system allow more open files (sysctl fs.file-max)",
    errno.ENOLCK: "choose a place whose file system has locks",
    errno.ENODEV: _REMOUNT,
    errno.ENXIO: _REMOUNT,
    errno.ESTALE: _REMOUNT,
    errno.ENOTCONN: _REMOUNT,
    errno.ETIMEDOUT: _REMOUNT,
    errno.EHOSTDOWN: _REMOUNT,
    errno.EHOSTUNREACH: _REMOUNT,
    errno.EREMOTEIO: _REMOUNT,
}
"""Remedies by error number. Errors with other numbers aren't caused by a disk."""


def disk_error_number(error: BaseException) -> int | None:
    """The error number of a disk error, one of `_REMEDIES`; None for any other error. Libraries in other languages
    raise exceptions of their own that contain the system's error message."""
    if isinstance(error, OSError):
        return error.errno if error.errno in _REMEDIES else None
    words = "" if isinstance(error, BertJaxError) else str(error)
    return next((number for number in _REMEDIES if os.strerror(number) in words), None)


def failure_reason(error: BaseException) -> str:
    """Why a read or write failed: the system's message for a disk error, or the first line of a library's message."""
    number = disk_error_number(error)
    return os.strerror(number) if number else first_line(error)


def disk_failure(error: BaseException, path: os.PathLike | None = None) -> RunError | None:
    """A disk error as a one-line RunError with file and remedy; None for any other error. `path`: the file that was
    being written, if known."""
    if not (number := disk_error_number(error)):
        return None
    named = getattr(error, "filename", None)
    named = os.fsdecode(named) if isinstance(named, (str, bytes)) else None
    where = f"{path} can't be written" if path else f"{named or 'a file'} can't be read or written"
    return RunError(f"{where} ({os.strerror(number)}); {_REMEDIES[number]}, and give the same command again")


@contextlib.contextmanager
def disk_explained(path: os.PathLike) -> Iterator[None]:
    """Turns disk errors within the block, which writes `path`, into RunError with a remedy."""
    try:
        yield
    except Exception as error:
        if explained := disk_failure(error, path):
            raise explained from error
        raise
