"""Errors of disks and file systems, explained with a remedy."""

import contextlib
import errno
import os
from collections.abc import Iterator

from bert_jax.system.bucket import Place
from bert_jax.system.errors import BertJaxError, RunError, first_line

FULL_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Error numbers for a full disk, an exceeded quota and an exceeded limit on file sizes."""

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
"""What the user can do, by error number. Errors with other numbers aren't caused by a disk."""


def number_of(error: BaseException) -> int | None:
    """The error number of a disk error, one of `_REMEDIES`; None for any other error.

    Libraries in other languages raise exceptions of their own that contain the system's error message.
    """
    if isinstance(error, OSError):
        return error.errno if error.errno in _REMEDIES else None
    words = "" if isinstance(error, BertJaxError) else str(error)
    return next((number for number in _REMEDIES if os.strerror(number) in words), None)


def reason(error: BaseException) -> str:
    """Why a write failed, in a few words."""
    number = number_of(error)
    return os.strerror(number) if number else first_line(error)


def failure(error: BaseException, path: Place | None = None) -> RunError | None:
    """A disk error as a one-line RunError with file and remedy; None for any other error.

    `path`: the file that was being written, if known.
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
    """Turns disk errors within the block, which writes `path`, into RunError with a remedy."""
    try:
        yield
    except Exception as error:
        if explained := failure(error, path):
            raise explained from error
        raise
