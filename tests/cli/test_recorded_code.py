"""What a run's config.json names is data: no command imports it or connects to it."""

import sys

import pytest
from extras import skip_without

from bert_jax.config.operation import HostsConfig, PreparationConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.settings import SettingsError
from bert_jax.inference.bert import load
from bert_jax.pretraining.pretrain import pretrain
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.run_files import RunFiles
from bert_jax.system.errors import UsageError

MODULE = """
import pathlib
pathlib.Path(__file__).with_name("imported").touch()
cut = lambda text: range(len(text) + 1)
"""
WORDS = "cuts_characters:cut"


@pytest.fixture(scope="module")
def made(tiny_config, tmp_path_factory):
    """A folder with such a module, and the run that a Python config with it made."""
    folder = tmp_path_factory.mktemp("code")
    (folder / "cuts_characters.py").write_text(MODULE, encoding="utf-8")
    logging = tiny_config.logging.replace(mlflow=str(folder / "mlflow"))
    sys.path.insert(0, str(folder))
    try:
        config = tiny_config.replace(data=tiny_config.data.replace(words=WORDS))
        pretrain(config, RunDirectory(folder / "run"))
    finally:
        sys.path.remove(str(folder))
    return folder, config.replace(logging=logging)


@pytest.fixture
def folder(made, monkeypatch):
    """The current folder, with `run` and the module, of which `imported` shows whether it was imported."""
    folder, _ = made
    sys.modules.pop("cuts_characters", None)
    (folder / "imported").unlink(missing_ok=True)
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if path not in ("", str(folder))])
    yield folder
    sys.modules.pop("cuts_characters", None)


@pytest.mark.parametrize(
    "line",
    [
        "pretrain run --workdir new --data.held-out 0.2",
        "pretrain run --workdir new --dry-run",
        "pretrain run --workdir new --print-config",
        "prepare run --workdir new",
        "evaluate run --data {corpus}",
    ],
)
@pytest.mark.long
def test_what_needs_the_code_is_refused(folder, corpus, line, refused):
    assert refused(*line.format(corpus=corpus).split()).endswith(f"add --data.words={WORDS}")
    assert not (folder / "imported").exists() and not (folder / "new").exists()


@pytest.mark.parametrize(
    "line",
    [
        "pretrain run --workdir run",
        "pretrain run --workdir run --dry-run",
        "prepare run --workdir run",
        "vocab run --workdir vocabulary",
        "evaluate run",
        "inspect run",
    ],
)
@pytest.mark.long
def test_what_does_not_need_the_code_works_without_it(folder, line, done):
    done(*line.split())
    assert not (folder / "imported").exists()


@pytest.mark.long
def test_code_that_is_named_again_is_run(folder, corpus, tmp_path, done, refused):
    done("prepare", "run", "--workdir", tmp_path / "new", "--data.words", WORDS)
    assert (folder / "imported").exists()
    done("evaluate", "run", "--data", corpus, "--words", WORDS)
    assert f"was prepared with {WORDS}" in refused("evaluate", "run", "--data", corpus, "--words", "other:cut")


def test_a_run_as_config_chooses_no_server(made, tmp_path, capsys):
    skip_without("mlflow")
    from bert_jax.run.config_files import load_config

    _, config = made
    hosts = HostsConfig(coordinator="10.0.0.1:8476", count=2, index=0)
    spark = PreparationConfig(engine="spark", spark=("spark.driver.extraJavaOptions=-javaagent:it.jar",), processes=2)
    RunDirectory(tmp_path / "run").open(config.replace(hosts=hosts, preparation=spark))
    assert RunFiles(tmp_path / "run").config.logging.mlflow
    taken = load_config(str(tmp_path / "run"), RunConfig)
    assert taken.logging.mlflow is None and taken.hosts == HostsConfig()
    assert taken.preparation == PreparationConfig(processes=2)
    assert capsys.readouterr().err.count("is not taken over") == 2


def test_options_of_spark_with_secrets_are_refused():
    with pytest.raises(SettingsError, match=r"has spark.hadoop.fs.s3a.secret.key, which would be written") as refused:
        PreparationConfig(engine="spark", spark=("spark.hadoop.fs.s3a.secret.key=hush",))
    assert "hush" not in str(refused.value)


@pytest.mark.parametrize(
    ("setting", "value"),
    [("data.source", "text:s3://bucket/a.txt"), ("data.source", "hf:OWNER/SET:train#text"), ("init", "owner/model")],
)
def test_a_place_elsewhere_that_a_run_alone_names_is_not_opened(made, tmp_path, refused, setting, value, monkeypatch):
    monkeypatch.setattr("bert_jax.system.bucket._check_answers", lambda scheme, bucket: pytest.fail("was asked"))
    _, config = made
    RunDirectory(tmp_path / "run").open(config.set({setting: value, "logging.mlflow": None}))
    said = refused("prepare", tmp_path / "run", "--workdir", tmp_path / "new")
    assert f"names {value}, which isn't on this machine" in said and f"add --{setting}=" in said
    assert not (tmp_path / "new").exists()


def test_rows_elsewhere_that_a_run_alone_names_are_not_read(vectors_run, monkeypatch):
    monkeypatch.setattr("bert_jax.system.bucket._check_answers", lambda scheme, bucket: pytest.fail("was asked"))
    predictor = load(vectors_run.path).predictor
    predictor.task = predictor.task.replace(dev="s3://bucket/dev.tsv")
    with pytest.raises(UsageError, match="--task.dev=s3://bucket/dev.tsv isn't on this machine"):
        predictor.measure()


def test_a_place_here_that_a_run_alone_names_is_said(made, tmp_path, done):
    _, config = made
    RunDirectory(tmp_path / "run").open(config.set({"data.words": None, "logging.mlflow": None}))
    said = done("prepare", tmp_path / "run", "--workdir", tmp_path / "new").err
    assert f"data.source is {config.data.source[0]}, as recorded in" in said
