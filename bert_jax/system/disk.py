"""What the system says where a disk takes or gives nothing, and what can be done about it."""

import contextlib
import errno
import os
from collections.abc import Iterator

from bert_jax.system.bucket import Place
from bert_jax.system.errors import BertJaxError, RunError

FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers of a full disk, a quota and a limit on file sizes."""

_REMOUNT = "see that its disk or server is there again"
_REMEDIES = {
    errno.ENOSPC: "free some space or choose another place",
    errno.EDQUOT: "free some of your quota or choose another place",
    errno.EFBIG: "raise the limit on the size of files (ulimit -f)",
    errno.EROFS: "mount that file system for writing or choose another place",
    errno.EPERM: "lift what forbids it (lsattr shows what is immutable) or choose another place",
    errno.EACCES: "give yourself the permission (ls -ld shows who has it) or choose another place",
    errno.EIO: "see what the system says of that disk (dmesg) or choose another place",
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
"""What to do, by the number of the error. All others are no fault of a disk."""


def number_of(error: BaseException) -> int | None:
    """The number, one of `_REMEDIES`, of the system's error that `error` is or tells of; None where it is another.

    Libraries in other languages give the system's words in exceptions of their own.
    """
    if isinstance(error, OSError):
        return error.errno if error.errno in _REMEDIES else None
    words = "" if isinstance(error, BertJaxError) else str(error)
    return next((number for number in _REMEDIES if os.strerror(number) in words), None)


def reason(error: BaseException) -> str:
    """Why something could not be written, in a few words."""
    number = number_of(error)
    return os.strerror(number) if number else str(error).partition("\n")[0] or type(error).__name__


def failure(error: BaseException, path: Place | None = None) -> RunError | None:
    """`error` as one line that names the file and the remedy; None where it is no fault of a disk.

    `path`: what was being written, where that is known.
    """
    if not (number := number_of(error)):
        return None
    named = getattr(error, "filename", None)
    named = os.fsdecode(named) if isinstance(named, (str, bytes)) else None
    where = f"{path} can't be written" if path else f"{named or 'a file'} can't be read or written"
    return RunError(
        f"{where} ({os.strerror(number)}); {_REMEDIES[number]}, and give the same command again: what was "
        "finished is kept"
    )


@contextlib.contextmanager
def disk_explained(path: Place) -> Iterator[None]:
    """Raises RunError, with what to do, for a disk that doesn't let the block write `path`."""
    try:
        yield
    except Exception as error:
        if explained := failure(error, path):
            raise explained from error
        raise
