from concurrent.futures import ThreadPoolExecutor

import pytest

from bert_jax.system.bucket import place_of
from bert_jax.system.copies import copy_into, fetched, publish, worked_on
from bert_jax.system.errors import RunError, UsageError
from bert_jax.system.files import FileSum, files_below, new_directory, write_json, write_text

CONTENT = {"a.txt": b"first", "sub/b": bytes(range(256)) * 100, "sub/deep/c": b""}


@pytest.fixture
def folder(bucket_server, bucket):
    """A folder of three objects."""
    for name, data in CONTENT.items():
        bucket_server.put(f"{bucket}/folder/{name}".removeprefix("gs://"), data)
    return place_of(f"{bucket}/folder")


def downloads(bucket_server):
    return [request for request in bucket_server.requests if request.startswith("GET /download")]


def uploads(bucket_server):
    return [request for request in bucket_server.requests if request.startswith("POST /upload")]


def content(directory):
    return {name: path.read_bytes() for name, path in files_below(directory).items()}


def test_a_path_on_this_machine_is_its_own_copy(tmp_path):
    assert fetched(tmp_path) == worked_on(tmp_path) == place_of(str(tmp_path)) == tmp_path
    publish(tmp_path)


@pytest.mark.parametrize("how", ["short", "wrong"])
def test_what_does_not_arrive_as_it_is_stored_is_no_copy(bucket_server, folder, how):
    bucket_server.fail("GET /download/.*sub%2Fb", how)
    with pytest.raises(RunError, match=r"sub/b.*the same command again"):
        fetched(folder)
    assert "sub/b" not in content(worked_on(folder)) and not list(worked_on(folder).rglob("*.tmp"))
    assert content(fetched(folder)) == CONTENT


def test_an_answer_that_fails_once_is_asked_for_again(bucket_server, folder):
    bucket_server.fail("GET /download/.*sub%2Fb", "503")
    assert content(fetched(folder)) == CONTENT


def test_nothing_there_is_one_line(bucket):
    with pytest.raises(UsageError, match="there is nothing at gs://"):
        fetched(place_of(f"{bucket}/missing"))


def test_processes_of_one_machine_may_ask_at_once(bucket_server, folder):
    with ThreadPoolExecutor(4) as threads:
        assert all(content(copy) == CONTENT for copy in threads.map(fetched, [folder] * 8))
    assert len(downloads(bucket_server)) == len(CONTENT)


def test_work_is_published_with_its_record_last(bucket_server, bucket, tmp_path):
    there = place_of(f"{bucket}/made")
    here = worked_on(there)
    for name in ("record.json", "b", "sub/c"):
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text(name)
    bucket_server.requests.clear()
    bucket_server.fail("POST /upload/.*", "503")
    publish(there, last="record.json")
    assert len(uploads(bucket_server)) == 3 + 1  # once each
    generations = {name: stored.generation for name, stored in bucket_server.objects.items() if "/made/" in name}
    assert max(generations, key=generations.get).endswith("/made/record.json") and len(generations) == 3
    bucket_server.requests.clear()
    assert fetched(there) == here and not downloads(bucket_server)
    (here / "b").write_text("c")  # of the same length
    publish(there, last="record.json")
    assert content(there)["b"] == b"c"
    assert len(uploads(bucket_server)) == 1


def test_writes_replace_objects_whole(bucket_server, bucket):
    path = place_of(f"{bucket}/a.json")
    write_json(path, {"ü": 1})
    write_text(path, "new")
    assert path.read_text() == "new" and FileSum.of(path).size == 3
    with pytest.raises(ZeroDivisionError):
        with new_directory(place_of(f"{bucket}/run")) as temporary:
            (temporary / "half").write_text("x")
            raise ZeroDivisionError
    assert bucket_server.names(bucket.removeprefix("gs://")) == ["/a.json"]


def test_a_new_directory_is_not_made_over_another(bucket, folder):
    with pytest.raises(UsageError, match="exists already"):
        with new_directory(folder):
            pass
    with new_directory(place_of(f"{bucket}/run")) as temporary:
        (temporary / "sub").mkdir()
        (temporary / "sub" / "a").write_text("x")
    assert content(place_of(f"{bucket}/run")) == {"sub/a": b"x"}


def test_folders_are_copied_into_others_wherever_they_are(folder, bucket, tmp_path):
    copy_into(folder, tmp_path)
    copy_into(folder / "a.txt", tmp_path)
    copy_into(tmp_path / "folder", place_of(f"{bucket}/other"))
    copy_into(folder / "a.txt", place_of(f"{bucket}/other"))
    assert content(tmp_path / "folder") == CONTENT and (tmp_path / "a.txt").read_bytes() == b"first"
    assert content(place_of(f"{bucket}/other")) == {"a.txt": b"first"} | {
        f"folder/{name}": data for name, data in CONTENT.items()
    }


@pytest.mark.parametrize("text", ["gs://", "gs://bucket/../other"])
def test_what_is_no_place_in_a_bucket_is_refused(bucket_server, text):
    with pytest.raises(UsageError, match="gs://BUCKET/FOLDER"):
        place_of(text)


def test_a_path_that_went_through_pathlib_is_understood(bucket, tmp_path):
    assert str(place_of(type(tmp_path)(f"{bucket}/a"))) == f"{bucket}/a"
