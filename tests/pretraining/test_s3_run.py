"""A run in S3 is read by every command; training there is refused."""

import pytest

import bert_jax
from bert_jax.cli.main import run as command

TEXT = "The old [MASK] sees the house."


@pytest.fixture
def run(s3, s3_server, tiny_run, corpus) -> str:
    """The tiny run in S3, and its text beside it."""
    for file in tiny_run.path.rglob("*"):
        if file.is_file():
            s3_server.objects[f"{s3}/run/{file.relative_to(tiny_run.path)}".removeprefix("s3://")] = file.read_bytes()
    s3_server.objects[f"{s3}/texts/a.txt".removeprefix("s3://")] = corpus.read_bytes()
    return f"{s3}/run"


def test_commands_read_it_and_write_beside_it(run, s3, tiny_run):
    """What they print is compared in test_bucket_run.py, where the same code reads and writes."""
    for line in (
        ["inspect", run],
        ["verify", run],
        ["export", run, f"{s3}/exported"],
        ["import", f"{s3}/exported", f"{s3}/imported"],
        ["features", run, f"{s3}/texts/a.txt", f"{s3}/vectors.npz"],
    ):
        assert command(line) == 0, line
    here = bert_jax.load(tiny_run.path).fill_mask(TEXT)
    assert bert_jax.load(run).fill_mask(TEXT) == here
    assert bert_jax.load(f"{s3}/imported").fill_mask(TEXT)[0][0][0] == here[0][0][0]


def test_training_there_is_refused_in_one_line(run, s3, s3_server, config_file, capsys):
    before = dict(s3_server.objects)
    for workdir in (f"{s3}/new", run):
        assert command(["pretrain", str(config_file), "--workdir", workdir]) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert line.startswith(
            f"bert-jax: --workdir {workdir}: training writes to a folder on this machine or to gs://"
        )
    assert s3_server.objects == before
