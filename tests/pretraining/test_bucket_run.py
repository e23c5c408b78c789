"""A whole run in a bucket, and all that is done with one."""

import json

import jax
import numpy as np
import pytest
from conftest import command

import bert_jax
from bert_jax.cli.main import run as bert_jax_command
from bert_jax.pretraining.pretrain import evaluate_run, pretrain
from bert_jax.system.bucket import place_of
from bert_jax.system.errors import RunError
from bert_jax.training.metrics import read_metrics
from bert_jax.training.run_directory import RunDirectory


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def run(bucket_server, tiny_config, cache, monkeypatch):
    """`tiny_config` trained in a bucket."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    run = RunDirectory("gs://bucket/run")
    if not run.path.exists():
        pretrain(tiny_config, run)
    return run


def test_it_learns_what_a_run_on_disk_learns(bucket_server, run, tiny_run):
    here, there = json.loads(tiny_run.results_file.read_text()), json.loads(run.results_file.read_text())
    assert here == there
    lines = [[line["loss"] for line in read_metrics(one.path / "metrics.jsonl")] for one in (run, tiny_run)]
    assert lines[0] == lines[1]
    for text in (
        "config.json",
        "tokenizer/vocab.txt",
        "data/length-32/prepared.json",
        "checkpoints/00000012/manifest.json",
    ):
        assert text in bucket_server.names("bucket/run/")
