"""Lines of a file of which no byte may be lost."""

import codecs
from collections import Counter
from collections.abc import Iterator

from bert_jax.data.file_source import BYTE_ORDER_MARK, undamaged_parts
from bert_jax.data.jsonl_files import whole_lines
from bert_jax.data.packed_files import opened
from bert_jax.system.bucket import Place
from bert_jax.system.errors import UsageError


def decoded_lines(path: Place, repairs: Counter[str]) -> Iterator[str]:
    """The lines of a UTF-8 file, plain, .gz or .zst, split at line feeds only, which they keep.

    A byte-order mark is taken off and counted. Raises UsageError for a file that can't be read, is damaged or is not
    UTF-8, with the line.
    """
    with opened(path) as raw:
        for number, line in whole_lines(path, undamaged_parts(path, raw)):
            if number == 1 and line.startswith(BYTE_ORDER_MARK):
                repairs["byte-order marks taken off"] += 1
                line = line.removeprefix(BYTE_ORDER_MARK)
            if number == 1 and line.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
                raise UsageError(f"{path} is UTF-16 text; save it as UTF-8")
            try:
                yield line.decode()
            except UnicodeDecodeError as error:
                raise UsageError(
                    f"{path}, line {number}: byte {error.start + 1} is not UTF-8; mend it, or save the file as UTF-8"
                ) from None
