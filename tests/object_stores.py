"""Fixtures: stand-ins for services that store objects, and folders in them."""

import os

import pytest
from extras import skip_without


@pytest.fixture(scope="session")
def bucket_server():
    """A stand-in for Cloud Storage, taken for the real one by this process and those that it starts."""
    skip_without("gcsfs")
    import fsspec
    from bucket_server import BucketServer

    server = BucketServer()
    os.environ |= {
        "STORAGE_EMULATOR_HOST": server.url,  # gcsfs and google-cloud-storage
        "TENSORSTORE_GCS_HTTP_URL": server.url,
        "GOOGLE_AUTH_TOKEN_FOR_TESTING": "none",  # tensorstore looks for no other
        "FSSPEC_GS_TOKEN": "anon",
        "GCSFS_EXPERIMENTAL_ZB_HNS_SUPPORT": "false",  # which would ask by gRPC what kind of bucket it is
    }
    fsspec.config.conf.setdefault("gs", {})["token"] = "anon"
    return server


@pytest.fixture
def bucket(bucket_server, tmp_path, monkeypatch):
    """A gs:// folder of the test's own, with nothing in it and nothing copied from it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    bucket_server.requests.clear()
    yield f"gs://bucket/{tmp_path.name}"
    assert not bucket_server.faults, "a fault that was asked for did not befall anything"


@pytest.fixture(scope="session")
def s3_server():
    """A stand-in for S3, taken for the real one by this process and those that it starts."""
    skip_without("s3fs")
    from s3_server import S3Server

    server = S3Server()
    keys = {"AWS_ACCESS_KEY_ID": "none", "AWS_SECRET_ACCESS_KEY": "none", "AWS_DEFAULT_REGION": "us-east-1"}
    os.environ |= {"AWS_ENDPOINT_URL": server.url} | keys
    return server


@pytest.fixture(scope="session")
def azure_server():
    """A stand-in for Azure, taken for the real one by this process and those that it starts."""
    skip_without("adlfs")
    from azure_server import AzureServer

    server = AzureServer()
    os.environ["AZURE_STORAGE_CONNECTION_STRING"] = server.connection
    return server


@pytest.fixture
def s3(s3_server, tmp_path, monkeypatch):
    """An s3:// folder of the test's own, with nothing in it and nothing copied from it."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    s3_server.requests.clear()
    return f"s3://bucket/{tmp_path.name}"
