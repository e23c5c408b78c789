"""Paths are absolute and normal, and unknown schemes are refused."""

import asyncio
import sys
from unittest.mock import Mock

import pytest

from bert_jax.cli import main, verify
from bert_jax.system import bucket
from bert_jax.system.bucket import place_of
from bert_jax.system.copies import fetched
from bert_jax.system.errors import RunError, UsageError
from bert_jax.system.files import FileSum, matching_files, new_directory, open_binary, remove_directory, write_text


def test_local_paths_are_absolute_and_without_double_dots(tmp_path, monkeypatch):
    (tmp_path / "far" / "inner").mkdir(parents=True)
    (tmp_path / "here").mkdir()
    (tmp_path / "here" / "link").symlink_to(tmp_path / "far" / "inner")
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("HOME", str(tmp_path))
    real = tmp_path.resolve()
    assert place_of("../runs/a b/é") == real / "runs/a b/é"
    assert place_of(".") == real / "here"
    assert place_of("./x//y") == real / "here/x/y"
    assert place_of("~/x") == tmp_path / "x"
    assert place_of("link/x") == real / "here/link/x"
    assert place_of("link/../x") == real / "far/x"  # as the system reads it


def test_a_path_that_went_through_pathlib_is_understood(bucket, tmp_path):
    assert str(place_of(type(tmp_path)(f"{bucket}/a"))) == f"{bucket}/a"


@pytest.mark.parametrize(
    "text, words",
    [
        ("gs://", "gs://BUCKET/FOLDER"),
        ("gs://bucket/../other", "gs://BUCKET/FOLDER"),
        ("https://host/a?b", r"web address, which isn't read; download it: curl -LO 'https://host/a\?b'$"),
        ("x\udcff", "isn't UTF-8; rename"),
    ],
)
def test_what_is_no_place_is_refused(bucket_server, text, words):
    with pytest.raises(UsageError, match=words):
        place_of(text)


@pytest.mark.parametrize("use", [place_of, matching_files])
def test_an_unknown_scheme_is_refused_by_name(use):
    with pytest.raises(UsageError, match="^memory://x has the scheme memory://.* or one of gs://, s3://, az://$"):
        use("memory://x")


@pytest.mark.parametrize(
    "scheme, library, extra", [("s3", "s3fs", "s3"), ("az", "adlfs", "azure"), ("abfs", "adlfs", "azure")]
)
def test_a_missing_library_is_named_with_its_extra(scheme, library, extra, monkeypatch):
    monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.setattr(bucket, "_store", bucket._store.__wrapped__)
    with pytest.raises(UsageError, match=rf"paths need {library}, which is not installed; .*\[{extra}\]"):
        place_of(f"{scheme}://missing/x")


@pytest.fixture
def at_once(monkeypatch):
    """A bucket's library tries again without a pause."""
    sleep = asyncio.sleep
    monkeypatch.setattr("asyncio.sleep", lambda seconds: sleep(0))


def test_a_bucket_that_does_not_answer_is_one_line(s3_server, monkeypatch, at_once):
    monkeypatch.setattr(s3_server, "objects", None)  # every answer fails
    with pytest.raises(bucket.BucketUnreachable, match="^s3://silent can't be read now .*the same command again"):
        place_of("s3://silent/x")


@pytest.mark.parametrize(
    "status, kind",
    [("404", UsageError), ("403", UsageError), ("401", UsageError), ("400", bucket.BucketUnreachable)],
)
def test_a_refusal_is_wrong_use_and_other_answers_may_pass(bucket_server, status, kind, at_once):
    bucket_server.fail("GET /storage/v1/b/refusing/o", status, 8)
    try:
        with pytest.raises(kind, match="^gs://refusing can't be read"):
            place_of("gs://refusing/x")
    finally:
        bucket_server.faults.clear()


def test_an_error_of_a_buckets_library_is_one_line(bucket_server, monkeypatch, capsys):
    from gcsfs.retry import HttpError

    error = HttpError({"code": 503, "message": "Backend Error"})
    monkeypatch.setattr(verify.Verify, "execute", Mock(side_effect=error))
    assert main.run(["verify", "anywhere"]) == 75
    assert capsys.readouterr().err.startswith("bert-jax: a bucket can't be reached (Backend Error, 503); give the same")


def test_files_in_a_bucket_are_found_and_read(folder, objects, content):
    assert content(folder) == objects and bucket.objects(folder).keys() == objects.keys()
    assert list(bucket.objects(folder / "a.txt")) == [""] and not bucket.objects(folder.with_name(folder.name[:-1]))
    assert [path.name for path in matching_files(f"{folder}/*.txt")] == ["a.txt"]
    assert len(matching_files(f"{folder}/**")) == 3 and not matching_files(f"{folder}/*.gz")
    assert fetched(folder / "a.txt").read_bytes() == b"first"
    with open_binary(folder / "sub" / "b %c") as file:
        assert file.seek(1000) == 1000 and file.read(5) == objects["sub/b %c"][1000:1005]
    with pytest.raises(FileNotFoundError):
        open_binary(folder / "missing")


@pytest.mark.parametrize("server", ["s3_server"], indirect=True)
def test_an_object_that_is_cut_short_is_not_read(server, folder):
    server.short.append("GET /.*/sub/b")
    with open_binary(folder / "sub" / "b %c") as file, pytest.raises(RunError, match="bytes came from byte 0 on where"):
        file.read()


def test_files_are_written_to_a_bucket_and_deleted(folder, objects, content):
    for text in ("old", "text"):
        write_text(folder / "new.txt", text)
    assert FileSum.of(folder / "new.txt").size == 4
    with new_directory(folder / "made") as made:
        (made / "x").write_text("y")
    with pytest.raises(ZeroDivisionError), new_directory(folder / "failed") as made:
        (made / "half").write_text("y")
        raise ZeroDivisionError
    assert content(folder) == objects | {"new.txt": b"text", "made/x": b"y"}
    for _ in range(2):
        remove_directory(folder / "made")
    assert content(folder) == objects | {"new.txt": b"text"}
    remove_directory(folder)
    assert not bucket.objects(folder) and list(bucket.objects(folder.with_name(f"{folder.name}2"))) == ["a"]
