"""Checks the files of a downloaded TFDS dataset before TFDS reads them: a malicious one is refused.

TFDS imports the module of every feature class named in features.json, whatever module that is, and builds file names
from a template in dataset_info.json. A dataset could thus run code, or read files of other directories.

The records are in ArrayRecord files, which are Riegeli files (github.com/google/riegeli,
doc/riegeli_records_file_format.md): a sequence of chunks. Each chunk holds a group of records and is decompressed as a
whole. A small file could thus fill the memory.
"""

import math
import mmap
import re
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import tensorflow_datasets as tfds
from google.protobuf import json_format
from tensorflow_datasets.core.proto import dataset_info_pb2, feature_pb2

from bert_jax.records import limits
from bert_jax.records.compressed_files import check_expansion
from bert_jax.records.messages import reason_of
from bert_jax.system.bucket import Place
from bert_jax.system.errors import UsageError
from bert_jax.system.json_file import MOST_BYTES, parse_object, read_bytes

_KNOWN = {
    f"{feature.__module__}.{feature.__name__}"
    for feature in vars(tfds.features).values()
    if isinstance(feature, type) and issubclass(feature, tfds.features.FeatureConnector)
}
"""Feature classes that features.json may name: all of TFDS' own."""
_TEMPLATE = re.compile(r"(?:[\w.-]|\{(?:DATASET|SPLIT|SHARD_INDEX|NUM_SHARDS|SHARD_X_OF_Y|FILEFORMAT)\})*")
"""A valid template of shard names: without directories, and without format specifications such as {SPLIT:9999}."""
_NAME = re.compile(r"[\w.-]*")
_FOLDERS = ("", "*/", "*/*/")
"""Directories that may contain metadata: the dataset's, that of a version, and that of a config's version."""
_BLOCK_BYTES = 1 << 16
_BLOCK_HEADER_BYTES = 24
"""Size of the block header at each multiple of _BLOCK_BYTES. It may interrupt a chunk anywhere."""
_CHUNK_HEADER = struct.Struct("<8xQ8xQQ")
"""Fields other than hashes: size of the data; type (one byte) and number of records; decompressed size."""
_TYPES = b"smprt"
"""Chunk types: signature, metadata, padding, simple records and transposed records."""


def check_metadata(directory: Place) -> None:
    """Checks every features.json and dataset_info.json of all configs and versions of the dataset in `directory`.

    Nothing that the dataset names is imported. Raises UsageError if a file is damaged, names a class that isn't TFDS'
    own, or has implausible sizes or names.
    """
    for name, kind in (("features.json", feature_pb2.Feature), ("dataset_info.json", dataset_info_pb2.DatasetInfo)):
        for path in [path for folder in _FOLDERS for path in directory.glob(folder + name)]:
            try:
                _check(_parsed(path, kind()))
            except (OSError, ValueError) as error:
                raise UsageError(
                    f"{path} is not read: {error}; prepare the set again, from a source that you trust"
                ) from None


def _parsed(path: Place, message: Any) -> Any:
    """Parses a JSON file as a protobuf message, like TFDS does. Raises ValueError if it isn't one.

    The format of TFDS before 4.5, which TFDS still reads, names classes in other fields: here it is an error.
    """
    value = parse_object(read_bytes(path, MOST_BYTES))
    try:
        return json_format.ParseDict(value, message)
    except Exception as error:  # ParseError, and other exceptions of protobuf for malformed values
        raise ValueError(reason_of(error)) from None


def _check(message: feature_pb2.Feature | dataset_info_pb2.DatasetInfo) -> None:
    """Raises ValueError for a dangerous class, name or size in a message."""
    if isinstance(message, dataset_info_pb2.DatasetInfo):
        _check_splits(message)
        waiting = [message.features] if message.HasField("features") else []
    else:
        waiting = [message]
    count = 0
    while waiting:
        feature, count = waiting.pop(), count + 1
        if count > limits.FEATURES:
            raise ValueError(f"it has more than {limits.FEATURES:,} features")
        if feature.python_class_name not in _KNOWN:
            raise ValueError(
                f"it names the class {feature.python_class_name[:60]!r}, which is none of TFDS' features and would be "
                "imported"
            )
        _check_content(feature)
        waiting += feature.features_dict.features.values()
        if feature.HasField("sequence"):
            waiting.append(feature.sequence.feature)


def _check_splits(info: dataset_info_pb2.DatasetInfo) -> None:
    for name in (info.name, *(split.name for split in info.splits)):
        if not _NAME.fullmatch(name):
            raise ValueError(f"it has the name {name[:60]!r}; letters, digits, '_', '-' and '.' are expected")
    for split in info.splits:
        if not _TEMPLATE.fullmatch(split.filepath_template):
            raise ValueError(f"its files are named by {split.filepath_template[:60]!r}, which is no plain file name")
        if len(split.shard_lengths) > limits.SHARDS:
            raise ValueError(f"split {split.name} has {len(split.shard_lengths):,} shards; {limits.SHARDS:,} are read")
        if any(length < 0 for length in split.shard_lengths) or sum(split.shard_lengths) > limits.SPLIT_RECORDS:
            raise ValueError(f"split {split.name} has shards of impossible lengths")


def _check_content(feature: feature_pb2.Feature) -> None:
    kind = feature.WhichOneof("content")
    if kind in (None, "json_feature"):  # a json_feature is nested JSON, which may again name classes and files
        raise ValueError(f"a feature of class {feature.python_class_name} lacks what TFDS writes of it")
    content = getattr(feature, kind)
    if kind in ("tensor", "image", "video", "audio", "bounding_box"):
        known = [size for size in content.shape.dimensions if size != -1]
        if any(size < 0 for size in known) or math.prod(known) > limits.ELEMENTS:
            raise ValueError(f"a feature has the shape {list(content.shape.dimensions)[:8]}")
    if kind == "sequence" and not -1 <= content.length <= limits.ELEMENTS:
        raise ValueError(f"a feature is a sequence of length {content.length}")
    for label in (feature.class_label, feature.image.label):
        if not 0 <= label.num_classes <= limits.CLASSES:
            raise ValueError(f"a feature has {label.num_classes} classes")


def check_groups(path: Path) -> None:
    """Raises UsageError if the file at `path`, or one group of records in it, decompresses to too many bytes.

    The headers can be trusted, since the library never decompresses more of a group than its header says. Raises
    OSError if the file can't be read, and ValueError if it is damaged.
    """
    with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        total = 0
        for unpacked in _unpacked_sizes(content):
            total += unpacked
            if unpacked > limits.GROUP_BYTES:
                raise UsageError(
                    f"{path}: a group of records takes {unpacked:,} bytes unpacked, and at most {limits.GROUP_BYTES:,} "
                    "are read; leave the set out, or write it with group_size:1 and shorter records"
                )
        check_expansion(path, "it unpacks to", total, len(content))


def _unpacked_sizes(content: bytes | mmap.mmap) -> Iterator[int]:
    """Yields the decompressed size of each chunk in bytes, from the chunk headers."""
    position = 0
    while position < len(content):
        begin = position if position % _BLOCK_BYTES else position + _BLOCK_HEADER_BYTES
        end, edge = begin + _CHUNK_HEADER.size, begin - begin % _BLOCK_BYTES + _BLOCK_BYTES
        header = content[begin:end]
        if end > edge:
            header = content[begin:edge] + content[edge + _BLOCK_HEADER_BYTES : end + _BLOCK_HEADER_BYTES]
        if len(header) < _CHUNK_HEADER.size:
            raise ValueError("it is cut short")
        data, type_and_records, unpacked = _CHUNK_HEADER.unpack(header)
        if type_and_records & 0xFF not in _TYPES:
            raise ValueError(f"no group of records begins at byte {position:,}")
        yield unpacked
        size, usable = _CHUNK_HEADER.size + data, _BLOCK_BYTES - _BLOCK_HEADER_BYTES
        headers = (size + (position + usable - 1) % _BLOCK_BYTES) // usable
        position += max(size + headers * _BLOCK_HEADER_BYTES, type_and_records >> 8)
