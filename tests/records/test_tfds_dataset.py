import json
import sys
from collections import Counter

import numpy as np
import pytest
import tensorflow_datasets as tfds
from damages import attack
from tfds_sets import LABELS, TEXT, read, write_set

from bert_jax.records.sources import task_records
from bert_jax.system.errors import UsageError


@pytest.fixture
def data_dir(tmp_path, monkeypatch):
    """TFDS' data directory, with a set of 500 pages in two shards."""
    features = {"text": TEXT, "id": tfds.features.Scalar(np.int64), "tags": tfds.features.Sequence(TEXT)}
    pages = [{"text": f"Page {number}.\n\nMore 雪.", "id": number, "tags": ["a", "b"]} for number in range(500)]
    write_set(tmp_path / "pages" / "plain" / "1.0.0", features, [pages[:300], pages[300:]])
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    return tmp_path


def numbers(documents):
    assert all(document[1:] == ["More 雪."] for document in documents)
    return [int(document[0][5:-1]) for document in documents]


def test_a_record_is_a_document_and_tensorflow_stays_out(data_dir):
    documents, corpus = read("tfds:pages/plain:train")
    assert numbers(documents) == list(range(500))
    assert (corpus.position, corpus.total, corpus.unit) == (500, 500, "records")
    assert "tensorflow" not in sys.modules


@pytest.mark.parametrize(
    "split, expected",
    [
        ("train[:1%]", range(5)),
        ("train[298:302]", range(298, 302)),
        ("train[99%:]", range(495, 500)),
        ("train[:2]+train[400:401]", [0, 1, 400]),
    ],
)
def test_splits_are_written_as_tfds_writes_them(data_dir, split, expected):
    documents, corpus = read(f"tfds:pages/plain:{split}")
    assert numbers(documents) == list(expected)
    assert corpus.content_hash != read("tfds:pages/plain:train")[1].content_hash


def test_a_version_may_be_named(data_dir):
    assert len(read("tfds:pages/plain:1.0.0:train[:3]#text")[0]) == 3


@pytest.fixture
def nested(tmp_path, monkeypatch):
    write_set(
        tmp_path / "nested" / "1.0.0",
        {"title": TEXT, "page": {"body": TEXT, "n": tfds.features.Scalar(np.int64)}},
        [[{"title": "A title", "page": {"body": text, "n": 1}} for text in ("Body.", "", b"bad \xff")]],
    )
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))


def test_of_several_text_features_one_has_to_be_named(nested):
    with pytest.raises(UsageError, match="tfds:nested has 2 text features: 'page.body', 'title'; name one after #"):
        read("tfds:nested:train")
    with pytest.raises(UsageError, match="no text feature 'page.n'; its text features: 'page.body', 'title'"):
        read("tfds:nested:train#page.n")
    assert read("tfds:nested:train#title")[0] == [["A title"]] * 3


def test_empty_and_undecodable_text_is_treated_as_in_any_record(nested):
    documents, corpus = read("tfds:nested:train#page.body")
    assert documents == [["Body."], ["bad \ufffd"]]
    assert corpus.repairs == {"records without text": 1, "lines with undecodable bytes": 1}
    with pytest.raises(UsageError, match="tfds:nested:train, record 2, 'page.body', line 1: byte 5 is not UTF-8"):
        read("tfds:nested:train#page.body", undecodable="refuse")


@pytest.mark.parametrize(
    "source, words",
    [
        ("tfds:pages/plain:test", "tfds:pages/plain:test can't be read (Unknown split 'test'"),
        ("tfds:pages/plain:train[:x", "can't be read (Error parsing split"),
        ("tfds:pages/plain:train[:0]", "holds no record"),
        ("tfds:absent/plain:train", "(Dataset absent not found)"),
    ],
)
def test_what_is_not_there_is_refused_in_one_line(data_dir, source, words):
    with pytest.raises(UsageError) as refusal:
        read(source)
    assert words in str(refusal.value) and "\n" not in str(refusal.value)


def test_a_set_that_is_not_prepared_gets_the_way_to_do_it(data_dir):
    with pytest.raises(UsageError) as refusal:
        read("tfds:imdb_reviews:train")
    for words in (
        "it is not prepared",
        '-e ".[tensorflow]"',
        "tfds build imdb_reviews --file_format=array_record",
        str(data_dir),
    ):
        assert words in str(refusal.value)


def test_a_set_in_another_format_is_to_be_prepared_again(data_dir):
    write_set(data_dir / "old" / "1.0.0", {"text": TEXT}, [[{"text": "x"}]], file_format="tfrecord")
    with pytest.raises(UsageError, match="its format is tfrecord.*tfds build old --file_format=array_record"):
        read("tfds:old:train")


def test_a_damaged_file_is_named(data_dir):
    path = next(data_dir.rglob("*00001-of-00002"))
    whole = path.read_bytes()
    path.write_bytes(whole[:2000] + b"\0" * 2000 + whole[4000:])
    with pytest.raises(UsageError, match=r"tfds:pages/plain:train: record \d+ can't be read, a file is damaged"):
        read("tfds:pages/plain:train")


def test_a_set_with_records_in_groups_is_read_in_silence(tmp_path, monkeypatch, caplog):
    texts = [f"text {number}" for number in range(10)]
    write_set(tmp_path / "few" / "1.0.0", {"text": TEXT}, [[{"text": text} for text in texts]], options="group_size:4")
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    assert read("tfds:few:train")[0] == [[text] for text in texts]
    assert not caplog.records


def test_a_tasks_records_have_all_features_as_json_would(tmp_path, monkeypatch):
    languages = ("de", "en")
    features = {
        "text": TEXT,
        "label": LABELS,
        "score": tfds.features.Scalar(np.float32),
        "flag": tfds.features.Scalar(np.bool_),
        "tokens": tfds.features.Sequence(TEXT),
        "tags": tfds.features.Sequence(LABELS),
        "answers": tfds.features.Sequence({"text": TEXT, "answer_start": np.int32}),
        "premise": tfds.features.Translation(languages=languages),
        "hypothesis": tfds.features.TranslationVariableLanguages(languages=languages),
    }
    of_all = {
        "text": "é",
        "score": 0.5,
        "flag": True,
        "tokens": ["a", "雪"],
        "tags": ["yes", "no"],
        "answers": {"text": ["b"], "answer_start": [3]},
        "premise": {"de": "ja", "en": "yes"},
        "hypothesis": {"de": "nein", "en": "no"},
    }
    examples = [of_all | {"label": label} for label in ("yes", -1)]
    write_set(tmp_path / "task" / "1.0.0", features, [examples])
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    found = list(task_records("tfds:task:train", Counter()))
    assert [record.values for record in found] == [of_all | {"label": label} for label in ("yes", None)]
    assert found[1].place == "tfds:task:train, record 1" and found[0].value("hypothesis.de") == "nein"
    assert "tensorflow" not in sys.modules


@pytest.fixture
def directory(tmp_path, monkeypatch):
    """The folder of the set tfds:pages, beside a module `marker` that could be imported."""
    folder = tmp_path / "pages" / "1.0.0"
    features = {"text": TEXT, "label": LABELS, "tags": tfds.features.Sequence({"n": np.int32, "t": TEXT})}
    write_set(folder, features, [[{"text": f"Page {n}.", "label": 0, "tags": []} for n in range(20)]])
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "marker.py").write_text("print('ran')")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.syspath_prepend(str(tmp_path / "here"))
    yield folder
    assert "marker" not in sys.modules


def with_class(feature, name):
    return feature | {"pythonClassName": name}


def changed(features, info, where, name):
    """features.json and dataset_info.json with the class `name` in one of the places where TFDS looks for it."""
    inside = features["featuresDict"]["features"]
    if where == "top":
        features = with_class(features, name)
    elif where == "in a dictionary":
        inside["text"] = with_class(inside["text"], name)
    elif where == "in a sequence":
        inside["tags"]["sequence"]["feature"] = with_class(inside["tags"]["sequence"]["feature"], name)
    elif where == "spelled as protobuf does":
        del inside["text"]["pythonClassName"]
        inside["text"]["python_class_name"] = name
    elif where == "as older sets name it":
        features = {"type": name, "content": {}}
    elif where == "by its protobuf message":
        features = {"type": features["pythonClassName"], "content": "{}", "proto_cls": name}
    elif where == "in JSON within JSON":
        sequence = inside["tags"]["pythonClassName"]
        content = json.dumps({"length": None, "feature": {"type": name, "content": {}}})
        inside["text"] = {"pythonClassName": sequence, "jsonFeature": {"json": content}}
    else:
        info["features"] = with_class(inside["text"], name)
    return features, info


@pytest.mark.parametrize(
    "where",
    [
        *("top", "in a dictionary", "in a sequence", "spelled as protobuf does", "as older sets name it"),
        *("by its protobuf message", "in JSON within JSON", "in dataset_info.json"),
    ],
)
def test_a_class_that_is_none_of_tfds_own_is_refused_and_not_imported(directory, where):
    files = [directory / "features.json", directory / "dataset_info.json"]
    values = changed(*(json.loads(file.read_text()) for file in files), where, "marker.Feature")
    for file, value in zip(files, values):
        file.write_text(json.dumps(value))
    for reading in (lambda: read("tfds:pages:train#text"), lambda: list(task_records("tfds:pages:train", Counter()))):
        with pytest.raises(UsageError, match=r"(features|dataset_info).json is not read: .*source that you trust"):
            reading()


@pytest.mark.parametrize("name", ["features.json", "dataset_info.json", "pages-train.array_record-00000-of-00001"])
def test_a_damaged_set_is_one_line_whatever_the_damage(directory, name, slow):
    attack(lambda: read("tfds:pages:train#text"), directory / name, count=2_000 if slow else 40)
