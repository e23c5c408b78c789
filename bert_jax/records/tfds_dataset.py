"""The source `tfds:NAME/CONFIG:SPLIT`: a TensorFlow Datasets set, read without TensorFlow.

TFDS imports the module of every feature class that features.json names, whatever module that is. Therefore only TFDS'
own classes are allowed.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow_datasets as tfds
from array_record.python.array_record_module import ArrayRecordReader
from google.protobuf import json_format
from tensorflow_datasets.core import naming
from tensorflow_datasets.core.file_adapters import FileFormat
from tensorflow_datasets.core.proto import dataset_info_pb2, feature_pb2
from tensorflow_datasets.proto import tf_example_pb2

from bert_jax.records.decoded_lines import Pass
from bert_jax.records.record import Record
from bert_jax.records.source import Source
from bert_jax.system.bucket import Place, place_of
from bert_jax.system.content import content_hash
from bert_jax.system.errors import UsageError, first_line, install_extra, listed
from bert_jax.system.json_file import MOST_JSON_BYTES, parse_object, read_bytes

_READER_OPTIONS = "readahead_buffer_size:0,max_parallelism:0"
"""No read-ahead: by default the reader decompresses several groups of records ahead, which takes memory."""
_READER_BUFFER_BYTES = 1 << 15
_TEXT = tfds.features.Text()
_KNOWN = {
    f"{feature.__module__}.{feature.__name__}"
    for feature in vars(tfds.features).values()
    if isinstance(feature, type) and issubclass(feature, tfds.features.FeatureConnector)
}
"""Feature classes that features.json may name."""
_METADATA = {"features.json": feature_pb2.Feature, "dataset_info.json": dataset_info_pb2.DatasetInfo}
"""The files that name feature classes, with their protobuf messages."""
_FOLDERS = ("", "*/", "*/*/")
"""Patterns of the directories that may have metadata: of the dataset, a version, and a config's version."""


class TfdsSource(Source):
    """The records, at least one, of a split of a prepared dataset in TFDS' data directory."""

    unit = "records"

    def __init__(self, name: str, split: str):
        """Opens the split; its records have all features. Raises UsageError if the dataset or the split doesn't exist,
        or the split is empty."""
        self.name, self._builder = f"tfds:{name}:{split}", _builder(name)
        try:
            self._files = self._builder.info.splits[split].file_instructions
        except Exception as error:  # ValueError for unknown splits and bad syntax, and TFDS' own exceptions
            raise UsageError(f"{self.name} can't be read ({first_line(error)}); name a split that is there") from None
        self.total = sum(file.take for file in self._files)
        if not self.total:
            raise UsageError(f"{self.name} holds no record; name another split")

    @classmethod
    def of_text(cls, name: str, split: str, feature: str | None) -> "TfdsSource":
        """Opens the split; its records have one text feature. `feature` names it, with dots for nested features
        (`a.b`); None: the dataset's only text feature. Raises UsageError also if the feature doesn't exist."""
        source = cls(name, split)
        source.field = _chosen(feature, sorted(_text_features(source._builder.info.features)), name)
        return source

    @property
    def content_hash(self) -> str:
        """Hash of the numbers of the records that are read, and of the contents of their files."""
        parts = [(os.path.basename(file.filename), file.skip, file.take) for file in self._files]
        files = [Path(file.filename) for file in self._files if os.path.isfile(file.filename)]
        return content_hash(self._builder.info.full_name, self.field, parts, *files)

    def records(self, progress: Pass) -> Iterator[Record]:
        """Yields the records.

        If all features are read, a text becomes a str, a sequence a list, and a translation a dict by language. A class
        label becomes its name; an unknown label, as in test splits, becomes None. Raises UsageError for damaged files.
        """
        features, key, number = self._builder.info.features, self.field.replace(".", "/"), 0
        try:
            for file in self._files:
                reader = ArrayRecordReader(
                    os.fspath(file.filename), _READER_OPTIONS, file_reader_buffer_size=_READER_BUFFER_BYTES
                )
                reader.seek(file.skip)
                for _ in range(file.take):
                    if key:  # text needs no decoding by TFDS, and decoding the other features would only cost time
                        example = tf_example_pb2.Example.FromString(reader.read())
                        values = {self.field: b"".join(example.features.feature[key].bytes_list.value[:1])}
                    else:
                        values = _plain(features, features.deserialize_example_np(reader.read()))
                    progress.position = number + 1
                    yield Record(f"{self.name}, record {number}", values)
                    number += 1
        except Exception as error:  # the library's readers raise ValueError, RuntimeError, DecodeError
            raise UsageError(
                f"{self.name}: record {number:,} can't be read, a file is damaged ({first_line(error)}); copy or "
                "prepare the set again"
            ) from None


def _plain(feature: tfds.features.FeatureConnector, value: Any) -> Any:
    """Converts a value that TFDS decoded to the types of JSON."""
    if isinstance(feature, tfds.features.TranslationVariableLanguages):
        pairs = zip(value["language"], value["translation"], strict=True)
        return {_plain(_TEXT, code): _plain(_TEXT, text) for code, text in pairs}
    if isinstance(feature, tfds.features.FeaturesDict):
        return {name: _plain(part, value[name]) for name, part in feature.items()}
    if isinstance(feature, tfds.features.Sequence) and isinstance(feature.feature, tfds.features.FeaturesDict):
        # TFDS keeps a list of objects as an object of lists.
        return {name: [_plain(part, one) for one in value[name]] for name, part in feature.feature.items()}
    if isinstance(feature, tfds.features.Sequence):
        return [_plain(feature.feature, one) for one in value]
    if isinstance(feature, tfds.features.ClassLabel):
        return feature.int2str(int(value)) if value >= 0 else None
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return value.tolist() if isinstance(value, np.ndarray) else value


def _builder(name: str) -> tfds.core.DatasetBuilder:
    """The TFDS builder of the dataset, set to its ArrayRecord files, which are read without TensorFlow.

    Raises UsageError if the dataset isn't prepared as ArrayRecord, or if its metadata names a class that isn't TFDS'
    own.
    """
    directory = os.environ.get("TFDS_DATA_DIR")
    data_dir = place_of(os.path.expanduser(directory or tfds.core.constants.DATA_DIR))
    try:
        parsed, settings = naming.parse_builder_name_kwargs(name)
        _check_feature_classes(data_dir / parsed.name / settings.get("config", ""))
        builder = tfds.builder(name, data_dir=directory)
        formats = builder.info.available_file_formats() if builder.info.splits else set()
        if FileFormat.ARRAY_RECORD in formats:
            if builder.info.file_format != FileFormat.ARRAY_RECORD:  # prepared in several formats
                builder.info.set_file_format(FileFormat.ARRAY_RECORD, override=True, override_if_initialized=True)
            return builder
        cause = f"its format is {formats.pop().value}" if formats else "it is not prepared"
    except UsageError:
        raise
    except Exception as error:  # TFDS' own error for an unknown name, or any error of a builder that needs TensorFlow
        cause = first_line(error).rstrip(".")
    raise UsageError(
        f"no set tfds:{name} in array_record format in {directory or tfds.core.constants.DATA_DIR} ({cause}); prepare "
        f"it, here or elsewhere, by {install_extra('tensorflow')} and tfds build {name} --file_format=array_record, "
        "and name the folder in TFDS_DATA_DIR"
    ) from None


def _check_feature_classes(directory: Place) -> None:
    """Checks the metadata of all configs and versions of the dataset in `directory`, before TFDS reads them.

    Raises UsageError if a file is damaged, or names a class that isn't TFDS' own. Only the metadata format that TFDS
    writes now is accepted, because other formats name classes in fields that aren't checked.
    """
    for name, message in _METADATA.items():
        for path in [path for folder in _FOLDERS for path in directory.glob(folder + name)]:
            try:
                parsed = json_format.ParseDict(parse_object(read_bytes(path, MOST_JSON_BYTES)), message())
                for feature in _features(parsed):
                    if feature.python_class_name not in _KNOWN or feature.HasField("json_feature"):
                        raise ValueError(
                            f"it names the class {feature.python_class_name[:60]!r}, which is none of TFDS' features "
                            "or has unknown content, and would be imported"
                        )
            except Exception as error:  # OSError, ValueError, and protobuf's own for malformed values
                raise UsageError(
                    f"{path} is not read: {first_line(error)}; prepare the set again, from a source that you trust"
                ) from None


def _features(message: feature_pb2.Feature | dataset_info_pb2.DatasetInfo) -> Iterator[feature_pb2.Feature]:
    """Yields a feature and all features inside it; for a dataset, all its features."""
    waiting = [message]
    if isinstance(message, dataset_info_pb2.DatasetInfo):
        waiting = [message.features] if message.HasField("features") else []
    while waiting:
        feature = waiting.pop()
        yield feature
        waiting += feature.features_dict.features.values()
        if feature.HasField("sequence"):
            waiting.append(feature.sequence.feature)


def _text_features(features: tfds.features.FeaturesDict, above: str = "") -> list[str]:
    """The names of all features that are one string; dots separate nested names."""
    names = []
    for name, feature in features.items():
        if isinstance(feature, tfds.features.FeaturesDict):
            names += _text_features(feature, f"{above}{name}.")
        elif isinstance(feature, tfds.features.Tensor) and feature.shape == () and np.dtype(feature.np_dtype).hasobject:
            names.append(above + name)
    return names


def _chosen(feature: str | None, features: list[str], name: str) -> str:
    """The text feature to read: `feature`, or the only one. Raises UsageError if it doesn't exist or is ambiguous."""
    if feature is None and len(features) == 1:
        return features[0]
    if feature is None:
        raise UsageError(f"tfds:{name} has {len(features)} text features: {listed(features)}; name one after #")
    if feature not in features:
        raise UsageError(f"tfds:{name} has no text feature {feature!r}; its text features: {listed(features)}")
    return feature
