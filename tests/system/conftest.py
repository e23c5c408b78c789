"""A folder in a bucket of each service."""

import pytest

from bert_jax.system.bucket import object_name, place_of


@pytest.fixture(params=["bucket_server", "s3_server", "azure_server"])
def server(request, tmp_path, monkeypatch):
    """A stand-in for a service, of which this machine has no copies."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return request.getfixturevalue(request.param)


@pytest.fixture
def objects():
    """The objects of `folder`."""
    return {"a.txt": b"first", "sub/b %c": bytes(range(256)) * 100, "sub/deep/c": b""}


@pytest.fixture
def folder(server, objects, tmp_path):
    """A folder in a bucket, beside objects whose names begin alike."""
    folder = place_of(f"{server.scheme}://bucket/{tmp_path.name}")
    for name, data in objects.items():
        server.put(object_name(folder / name), data)
    for name in ("2/a", ".txt"):
        server.put(object_name(folder) + name, b"another")
    return folder


@pytest.fixture
def content():
    """Reads all files below a directory, by their names."""
    from bert_jax.system.files import files_below

    return lambda directory: {name: path.read_bytes() for name, path in files_below(directory).items()}
