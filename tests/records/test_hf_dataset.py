import importlib
import json
import os
import sys
from importlib.machinery import ModuleSpec

import pytest
from conftest import stories
from extras import skip_without

from bert_jax.config.data import DataConfig
from bert_jax.records import hf_dataset
from bert_jax.records.corpus import open_corpus
from bert_jax.system.errors import UsageError

DOCUMENTS = [document.split("\n") for document in stories(5).strip().split("\n\n")]


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    """The library, with a cache of its own and no network."""
    skip_without("datasets")
    patch = pytest.MonkeyPatch()  # before the import, at which the library reads it
    patch.setenv("HF_HUB_OFFLINE", "1")
    patch.setenv("HF_HOME", str(tmp_path_factory.mktemp("cache")))
    library = importlib.import_module("datasets")
    for module in ("datasets.config", "huggingface_hub.constants"):  # another test may have imported them before
        patch.setattr(f"{module}.HF_HUB_OFFLINE", True)
    yield library
    patch.undo()


@pytest.fixture
def folder(tmp_path):
    """A set of 5 records to train on, as JSON lines, and 2 to test on."""
    records = [{"text": "\n".join(document), "page": {"body": document[0]}} for document in DOCUMENTS]
    for split, part in (("train", records), ("test", records[:2])):
        (tmp_path / f"{split}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in part))
    return tmp_path


def opened(source: str, **settings):
    return open_corpus(DataConfig(source=source, **settings)).parts[0]


def test_records_of_a_folder_are_documents_in_every_pass(library, folder):
    corpus = opened(f"hf:{folder}:train#text")
    for _ in range(2):
        assert list(corpus.documents()) == DOCUMENTS
        assert corpus.position == corpus.source.total > 0 and not corpus.repairs
    assert list(opened(f"hf:{folder}:test#page.body").documents()) == [[document[0]] for document in DOCUMENTS[:2]]


def test_another_text_split_or_field_is_another_content_and_another_time_is_none(library, folder):
    sources = [f"hf:{folder}:{rest}" for rest in ("train#text", "test#text", "train#page.body")]
    hashes = [opened(source).source.content_hash for source in sources]
    assert len(set(hashes)) == 3
    file = folder / "train.jsonl"
    os.utime(file, (1, 1))
    assert opened(sources[0]).source.content_hash == hashes[0]
    file.write_text(file.read_text().replace("The", "One", 1))
    assert opened(sources[0]).source.content_hash != hashes[0]


@pytest.mark.parametrize(
    "rest, words",
    [
        ("train#body", "record 0 has no column 'body': there is 'text', 'page'; name another after #"),
        ("train#page", "'page' is an object of 'body' and not a string"),
        ("validation#text", "can't be opened .*'train', 'test'"),
    ],
)
def test_what_is_not_there_is_named_with_what_is(library, folder, rest, words):
    with pytest.raises(UsageError, match=words) as refusal:
        opened(f"hf:{folder}:{rest}")
    assert "\n" not in str(refusal.value)


def test_a_set_of_the_hub_offline_is_one_line(library):
    with pytest.raises(UsageError, match=r"^hf:nobody/nothing:train can't be opened \(.*\); name OWNER/SET") as refusal:
        opened("hf:nobody/nothing:train#text")
    assert "\n" not in str(refusal.value)


def test_code_that_comes_with_a_set_is_not_run(library, folder):
    (folder / f"{folder.name}.py").write_text("raise SystemExit('it ran')")
    for path in (folder, folder / f"{folder.name}.py"):
        try:
            list(opened(f"hf:{path}:train#text").documents())
        except UsageError as refusal:
            assert "\n" not in str(refusal)


def test_a_damaged_file_is_one_line(library, folder):
    (folder / "train.jsonl").write_text('{"text": "x"}\n{"text": \n')
    with pytest.raises(UsageError, match=r"record 0 can't be read \(.*\); a file is damaged") as refusal:
        list(opened(f"hf:{folder}:train#text").documents())
    assert "\n" not in str(refusal.value)


def test_a_configuration_stands_after_the_name(tmp_path):
    assert hf_dataset._path_and_config("owner/set") == ("owner/set", None)
    assert hf_dataset._path_and_config("owner/set/part") == ("owner/set", "part")
    assert hf_dataset._path_and_config(str(tmp_path)) == (str(tmp_path), None)
    with pytest.raises(UsageError, match="hf:.*/part is no folder; name OWNER/SET"):
        hf_dataset._path_and_config(f"{tmp_path}/part")
    (tmp_path / "README.md").write_text("")
    assert hf_dataset._path_and_config(f"{tmp_path}/part") == (str(tmp_path), "part")


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UsageError, match=r"pip install .*\[hf\]."):
        opened("hf:a/b:train#text")


def test_an_old_library_that_runs_code_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", type(sys)("datasets"))
    sys.modules["datasets"].__version__ = "3.6.0"
    sys.modules["datasets"].__spec__ = ModuleSpec("datasets", None, origin="elsewhere")
    with pytest.raises(UsageError, match="datasets 3.6.0 is installed, which may run code"):
        opened("hf:a/b:train#text")
