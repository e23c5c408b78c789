"""Small files that unpack or parse to enormous ones: read in bounded memory and time, or refused with the bound.

The bombs and the limits have an eighth of their real size.
"""

import json
import os
import subprocess
import sys
import zlib
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
import zstandard

LINE = b"the same line of text again and again\n"
WORDS = b"word " * 1000
MOST_MB = 120
MOST_S = 25
SCALED = ("FREE_BYTES", "RECORD_BYTES", "RECORD_VALUES", "SQUAD_BYTES", "SQUAD_VALUES", "COLUMNS", "SENTENCE_WORDS")

# Reads each bomb in a process of its own, forked from one that has imported everything.
_READER = f"""
import json, os, resource, sys, time
from collections import Counter

from bert_jax.records import limits

for name in {SCALED}:  # before they become defaults of functions
    setattr(limits, name, getattr(limits, name) // 8)

from bert_jax.config.data import DataConfig
from bert_jax.records.corpus import open_corpus
from bert_jax.records.sources import held_records
from bert_jax.system.errors import BertJaxError

def read(source):
    try:
        if ":" in source:
            return f"read {{sum(1 for _ in open_corpus(DataConfig(source=source)).documents())}}"
        return f"read {{len(held_records(source, Counter()))}}"
    except BertJaxError as error:
        return str(error)
    except BaseException as error:
        return f"FAILED by {{type(error).__name__}}"

for source in sys.argv[1:]:
    if not (child := os.fork()):
        before, begin = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.monotonic()
        resource.setrlimit(resource.RLIMIT_CPU, ({MOST_S}, {MOST_S}))
        resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
        said = read(source)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        print(json.dumps([source, said, peak / 1000, time.monotonic() - begin]), flush=True)
        os._exit(0)
    os.waitpid(child, 0)
"""


def repeated(text: str, times: int, rows: int) -> pa.Table:
    """A column of one value, which a Parquet file has once and refers to in every row."""
    index = pa.array([0] * rows, pa.int32())
    return pa.table({"text": pa.DictionaryArray.from_arrays(index, pa.array([text * times]))})


def packed(*parts: tuple[bytes, int]) -> bytes:
    """gzip of each text so many times."""
    packer = zlib.compressobj(6, wbits=31)
    packed = []
    for text, count in parts:
        at_once = max(count // 1000, 1)
        packed += [packer.compress(text * at_once) for _ in range(count // at_once)]
    return b"".join([*packed, packer.flush()])


BOMBS = {
    "text:lines.txt.zst": (lambda: zstandard.compress(LINE * 125_000), "read "),
    "text:many.txt.zst": (lambda: zstandard.compress(LINE * 312_500), "it unpacks to"),
    "text:many.txt.gz": (lambda: packed((LINE, 312_500)), "it unpacks to"),
    "text:zeros.txt.gz": (lambda: packed((b"\0", 6_000_000)), "line 1: byte 1 is NUL"),
    "jsonl:values.jsonl.gz#text": (lambda: packed((b"[", 1), (b"[],", 1_250_000)), "more than 250,000 values"),
    "line.jsonl.gz": (lambda: packed((b"[", 1), (b"[],", 2_500_000)), "4,194,304 bytes"),
    "squad.json.gz": (lambda: packed((b'{"data":[', 1), (b"[],", 1_250_000)), "more than 625,000 values"),
    "quoted.csv.gz": (lambda: packed((b'"' + b"word " * 40 + b'\n",', 62_500)), "4,194,304 characters"),
    "wide.csv.gz": (lambda: packed((b"xy,", 1_250_000)), "1,250,000 separators between columns, and at most 12,500"),
    "short.csv.gz": (lambda: packed((b"text,label\n", 1), (b"a,0\n", 2_000_000)), "rows take 8,38"),
    "nested.jsonl.gz": (lambda: packed((b'{"text": "a", "other": [' + b"[]," * 10_000 + b"[]]}\n", 125)), "take 8,"),
    "wide_characters.json.gz": (
        lambda: packed(('{"data": ["\U0001f600'.encode(), 1), (os.urandom(650_000).hex().encode(), 1), (WORDS, 3_500)),
        "longer than 16,777,216 bytes",
    ),
    "unclosed.tsv.gz": (lambda: packed((b'text\tlabel\n"Hello\t1\n', 1), (WORDS + b"\t0\n", 600)), "read 601"),
    "spaces.conll.gz": (lambda: packed((b"x\ty", 1), (b" ", 1_000_000), (b"z\tO\n", 1)), "read 1"),
    "wide.conll.gz": (lambda: packed((b"xy\t", 1_250_000)), "line 1 has more than 12,500 columns"),
    "wide.conllu.gz": (lambda: packed((b"xy\t", 1_250_000)), "line 1 has more than 12,500 columns"),
    "endless.conll.gz": (lambda: packed((b"x O\n", 625_000)), "has more than 12,500 words"),
}
TABLES = {
    "parquet:value.parquet#text": ((12_500_000, 128), "take 12,500,"),
    "parquet:rows.parquet#text": ((6_250_000, 12_500), "take 12,500,"),
    "parquet:lying.parquet#text": ((12_500_000, 128), "take 12,500,"),
}


def deny_size(file: Path) -> None:
    """Has a Parquet file's footer say that its column has 2,000 bytes."""
    size = varint(2 * pa.parquet.ParquetFile(file).metadata.row_group(0).column(0).total_uncompressed_size)
    file.write_bytes(file.read_bytes().replace(size, varint(2 * 2_000, len(size))))
    assert pa.parquet.ParquetFile(file).metadata.row_group(0).column(0).total_uncompressed_size == 2_000


def varint(value: int, length: int = 1) -> bytes:
    """As Thrift writes it, in `length` bytes or more."""
    groups = [value & 127]
    while (value := value >> 7) or len(groups) < length:
        groups.append(value & 127)
    return bytes([group | 128 for group in groups[:-1]] + groups[-1:])


@pytest.fixture(scope="module")
def peaks(tmp_path_factory) -> dict[str, tuple[str, float, float]]:
    """What reading each bomb says, the memory that it took in MB, and the seconds."""
    folder, sources = tmp_path_factory.mktemp("bombs"), {}
    for name in [*BOMBS, *TABLES]:
        kind, _, rest = name.rpartition(":")
        file = folder / rest.partition("#")[0]
        if name in BOMBS:
            file.write_bytes(BOMBS[name][0]())
        else:
            size, rows = TABLES[name][0]
            pa.parquet.write_table(repeated("word ", size // 5, rows), file, compression="zstd")
            if "lying" in name:
                deny_size(file)
        sources[name] = f"{kind}:{folder}/{rest}" if kind else f"{folder}/{rest}"
        assert file.stat().st_size < 1_000_000
    root = Path(__file__).parents[2]
    found = subprocess.run(
        [sys.executable, "-c", _READER, *sources.values()], cwd=root, capture_output=True, text=True, timeout=600
    )
    by_source = {source: tuple(rest) for source, *rest in map(json.loads, found.stdout.splitlines())}
    return {name: by_source.get(source, ("not ended", 0.0, MOST_S)) for name, source in sources.items()}


@pytest.mark.parametrize("name", [*BOMBS, *TABLES])
@pytest.mark.long(first=1)
def test_a_bomb_is_bounded_and_the_bound_named(peaks, name):
    said, megabytes, seconds = peaks[name]
    assert (BOMBS | TABLES)[name][1] in said and "\n" not in said
    assert megabytes < MOST_MB, f"{megabytes:,.0f} MB"
    assert seconds < MOST_S
