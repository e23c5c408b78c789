"""Strict decoding of UTF-8 files, by lines or whole: any undecodable byte is an error."""

from collections import Counter
from collections.abc import Iterator

from bert_jax.corpora.compressed_files import opened
from bert_jax.corpora.file_source import BYTE_ORDER_MARK, undamaged_parts
from bert_jax.corpora.jsonl_files import whole_lines
from bert_jax.system.bucket import Place
from bert_jax.system.errors import UsageError

_MARK = "byte-order marks taken off"


def decoded_lines(path: Place, repairs: Counter[str]) -> Iterator[str]:
    """Yields the lines of a UTF-8 file, plain, .gz or .zst. Lines end at line feeds only, and keep them.

    A byte-order mark is removed and counted in `repairs`. Raises UsageError if the file can't be read, is damaged or
    isn't UTF-8 (naming the line), or if a line is longer than MAX_RECORD_BYTES.
    """
    with opened(path) as raw:
        for number, line in whole_lines(path, undamaged_parts(path, raw)):
            if number == 1 and line.startswith(BYTE_ORDER_MARK):
                repairs[_MARK] += 1
                line = line.removeprefix(BYTE_ORDER_MARK)
            try:
                yield line.decode()
            except UnicodeDecodeError as error:
                raise UsageError(
                    f"{path}, line {number}: byte {error.start + 1} is not UTF-8; mend it, or save the file as UTF-8"
                ) from None


def decoded_text(path: Place, repairs: Counter[str], most_bytes: int) -> str:
    """The whole text of a UTF-8 file, plain, .gz or .zst, of at most `most_bytes` decompressed bytes.

    A byte-order mark is removed and counted in `repairs`. Raises UsageError if the file can't be read, is damaged,
    isn't UTF-8 (naming the line), or is larger.
    """
    content = bytearray()
    with opened(path) as raw:
        for _, part in undamaged_parts(path, raw):
            content += part
            if len(content) > most_bytes:
                raise UsageError(
                    f"{path} has more than {most_bytes:,} bytes of content and is read whole; give it in several files"
                )
    if content.startswith(BYTE_ORDER_MARK):
        repairs[_MARK] += 1
        del content[: len(BYTE_ORDER_MARK)]
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise UsageError(
            f"{path}, line {line}: byte {error.start + 1:,} of the file is not UTF-8; mend it, or save the file as "
            "UTF-8"
        ) from None
