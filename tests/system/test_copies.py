import re
from concurrent.futures import ThreadPoolExecutor

import pytest

from bert_jax.system.bucket import object_name, place_of
from bert_jax.system.copies import copy_into, fetched, local_path, publish
from bert_jax.system.errors import RunError, UsageError
from bert_jax.system.files import new_directory

OF_CLOUD_STORAGE = pytest.mark.parametrize("server", ["bucket_server"], indirect=True)


def asked(server, request):
    return [each for each in server.requests if re.match(request, each)]


def test_a_path_on_this_machine_is_its_own_copy(tmp_path):
    assert fetched(tmp_path) == local_path(tmp_path) == place_of(str(tmp_path)) == tmp_path
    publish(tmp_path)


def test_a_copy_is_made_once_and_again_where_an_object_changed_or_went(server, folder, objects, content):
    copy = fetched(folder)
    assert content(copy) == objects
    server.put(object_name(folder / "a.txt"), b"other")  # of the same length
    del server.objects[object_name(folder / "sub" / "deep" / "c")]
    server.requests.clear()
    changed = {"a.txt": b"other", "sub/b %c": objects["sub/b %c"]}
    assert content(fetched(folder)) == changed and not asked(server, r".*sub(/|%2F)b")
    (copy / "sub" / "b %c").write_bytes(b"cut by someone else")
    assert content(fetched(folder)) == changed
    with pytest.raises(UsageError, match=f"there is nothing at {server.scheme}://"):
        fetched(folder / "missing")


@pytest.mark.parametrize(
    "server, how", [("bucket_server", "short"), ("bucket_server", "wrong"), ("s3_server", "short")], indirect=["server"]
)
def test_what_does_not_arrive_as_it_is_stored_is_no_copy(server, folder, objects, content, how):
    if server.scheme == "s3":
        server.short.append("GET /.*/sub/b")
    else:
        server.fail("GET /download/.*sub%2Fb", how)
    with pytest.raises(RunError, match="sub/b.*the same command again"):
        fetched(folder)
    assert "sub/b %c" not in content(local_path(folder)) and not list(local_path(folder).rglob("*.tmp"))
    assert content(fetched(folder)) == objects


@OF_CLOUD_STORAGE
@pytest.mark.parametrize("name", ["../../../outside.txt", "sub/./d", "sub//d"])
def test_an_object_whose_name_leaves_the_folder_is_refused(server, folder, content, name):
    server.put(f"{object_name(folder)}/{name}", b"hostile")
    with pytest.raises(UsageError, match="has no name of a file below it"):
        fetched(folder)
    assert not local_path(folder).exists() and not list(local_path(folder).parents[3].rglob("outside.txt"))


@OF_CLOUD_STORAGE
def test_an_answer_that_fails_once_is_asked_for_again_and_processes_may_ask_at_once(server, folder, objects, content):
    server.requests.clear()
    server.fail("GET /download/.*sub%2Fb", "503")
    with ThreadPoolExecutor(4) as threads:
        assert all(content(copy) == objects for copy in threads.map(fetched, [folder] * 8))
    assert len(asked(server, "GET /download")) == len(objects) + 1


def test_work_is_published_with_its_record_last(bucket_server, bucket, content):
    there = place_of(f"{bucket}/made")
    here = local_path(there)
    for name in ("record.json", "b", "sub/c"):
        (here / name).parent.mkdir(parents=True, exist_ok=True)
        (here / name).write_text(name)
    bucket_server.requests.clear()
    bucket_server.fail("POST /upload/.*", "503")
    publish(there, last="record.json")
    assert len(asked(bucket_server, "POST /upload")) == 3 + 1  # once each
    generations = {name: stored.generation for name, stored in bucket_server.objects.items() if "/made/" in name}
    assert max(generations, key=generations.get).endswith("/made/record.json") and len(generations) == 3
    bucket_server.requests.clear()
    assert fetched(there) == here and not asked(bucket_server, "GET /download")
    (here / "b").write_text("c")  # of the same length
    publish(there, last="record.json")
    assert content(there)["b"] == b"c" and len(asked(bucket_server, "POST /upload")) == 1


@OF_CLOUD_STORAGE
def test_a_new_directory_is_not_made_over_another(folder):
    with pytest.raises(UsageError, match="exists already"):
        with new_directory(folder):
            pass


@OF_CLOUD_STORAGE
def test_folders_are_copied_into_others_wherever_they_are(folder, objects, content, tmp_path):
    other = folder.with_name(f"{folder.name}-other")
    copy_into(folder, tmp_path)
    copy_into(folder / "a.txt", tmp_path)
    copy_into(tmp_path / folder.name, other)
    copy_into(folder / "a.txt", other)
    assert content(tmp_path / folder.name) == objects and (tmp_path / "a.txt").read_bytes() == b"first"
    assert content(other) == {"a.txt": b"first"} | {f"{folder.name}/{name}": data for name, data in objects.items()}
