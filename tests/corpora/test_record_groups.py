"""The sizes that the headers of an ArrayRecord file tell."""

import os

import numpy as np
from array_record.python.array_record_module import ArrayRecordWriter

from bert_jax.corpora.record_groups import _unpacked_sizes


def test_every_record_is_found_wherever_its_header_lies(tmp_path):
    """Headers of blocks, every 65,536 bytes, interrupt records and their headers."""
    sizes = np.random.default_rng(0).integers(0, 300, 3000).tolist() + [65_408, 65_500, 200_000, 0, 1]
    for options in ("group_size:1,uncompressed", "group_size:1"):
        file = tmp_path / "records"
        writer = ArrayRecordWriter(os.fspath(file), options)
        for size in sizes:
            writer.write(os.urandom(size))
        writer.close()
        # Before them is the file's signature, after them the table of their places.
        assert list(_unpacked_sizes(file.read_bytes()))[1 : len(sizes) + 1] == sizes
