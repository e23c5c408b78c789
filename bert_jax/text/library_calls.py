"""Converts the errors of the libraries that encode texts to UsageError.

A text from Python or the command line may hold half of a surrogate pair, which no library takes. A pattern of another
program's tokenizer.json may take so long that the library of Hugging Face panics.
"""

import contextlib
import functools
import os
import re
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

from bert_jax.system.errors import UsageError, first_line, listed, quoted

_HALF_OF_A_PAIR = re.compile("[\ud800-\udfff]")
_PANIC = "PanicException"
"""Name of the library's exception class, which it doesn't export."""
_STANDARD_ERROR, _LOCK = 2, threading.RLock()

_Method = TypeVar("_Method", bound=Callable[..., Any])


def has_half_of_a_pair(text: str) -> bool:
    """Whether `text` holds half of a surrogate pair, which is no character and which UTF-8 can't encode."""
    return not text.isascii() and _HALF_OF_A_PAIR.search(text) is not None


def library_method(method: _Method) -> _Method:
    """Decorates a method of a tokenizer that passes a text, or a sequence of texts, to a library.

    The method raises UsageError for a value that is no text, for half of a surrogate pair, and for a text on which the
    library panics, whose report isn't printed.
    """

    @functools.wraps(method)
    def checked_method(self, text):
        try:
            with _without_report() if self.patterns and sys.stderr else contextlib.nullcontext():
                return method(self, text)
        except (TypeError, AttributeError, UnicodeEncodeError, RuntimeError):  # which one depends on library and method
            texts = [text] if isinstance(text, str) or not hasattr(text, "__iter__") else list(text)
            for item in texts:
                if not isinstance(item, str):
                    raise UsageError(f"{quoted(item)} is no text; give a str") from None
                if has_half_of_a_pair(item):
                    raise UsageError(f"{quoted(item)} has half of a surrogate pair, which is no character") from None
            raise
        except BaseException as error:
            if type(error).__name__ != _PANIC:
                raise
            raise UsageError(
                f"{self.name}: its patterns {listed(self.patterns)} can't be applied to {quoted(text)} "
                f"({first_line(str(error))}); leave such texts out, or give a tokenizer with other patterns"
            ) from None

    return cast(_Method, checked_method)


@contextlib.contextmanager
def _without_report() -> Iterator[None]:
    """Holds back standard error within the block. It is printed after the block, or dropped if the block fails."""
    with _LOCK, tempfile.TemporaryFile() as file:
        before = os.dup(_STANDARD_ERROR)
        os.dup2(file.fileno(), _STANDARD_ERROR)
        try:
            yield
        finally:
            os.dup2(before, _STANDARD_ERROR)
            os.close(before)
        file.seek(0)
        os.write(_STANDARD_ERROR, file.read())
