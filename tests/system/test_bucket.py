"""Paths are absolute and normal, and unknown schemes are refused."""

from pathlib import Path

import pytest

from bert_jax.system.bucket import place_of
from bert_jax.system.errors import UsageError
from bert_jax.system.files import matching_files


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


@pytest.mark.parametrize("url", ["s3://bucket/x", "https://host/a.txt", "abfs://c/x", "memory://x", "hdfs://h/x"])
def test_an_unknown_scheme_is_refused_by_name(url):
    scheme = url.partition(":")[0]
    for use in (place_of, matching_files):
        with pytest.raises(UsageError, match=f"^{url} has the scheme {scheme}://"):
            use(url)
    with pytest.raises(UsageError, match=scheme) if scheme != "hdfs" else pytest.raises(UsageError):
        place_of(Path(url) if scheme != "hdfs" else url)
