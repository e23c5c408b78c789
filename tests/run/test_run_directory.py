import json
import re
import subprocess
import sys

import pytest

from bert_jax.config.model import ModelConfig
from bert_jax.config.run import RunConfig
from bert_jax.run.recorded_config import differences
from bert_jax.run.results import Results
from bert_jax.run.run_directory import RunDirectory
from bert_jax.run.run_files import RunFiles
from bert_jax.system.errors import RunError, UsageError


def under_way(path):
    (path / "checkpoints" / "00000001").mkdir(parents=True)
    (path / "checkpoints" / "00000001" / "manifest.json").write_text("{}")


def test_the_config_is_read_as_it_was_written_and_may_change_until_training_begins(tmp_path):
    for config in (RunConfig(seed=5), RunConfig(model=ModelConfig.tiny())):
        RunDirectory(tmp_path / "run").open(config)
        assert RunFiles(tmp_path / "run").config == config


def test_a_run_under_way_refuses_to_become_another_and_names_the_fields(tmp_path):
    RunDirectory(tmp_path).open(RunConfig())
    under_way(tmp_path)
    before = (tmp_path / "config.json").read_bytes()
    with pytest.raises(UsageError) as refusal:
        RunDirectory(tmp_path).open(RunConfig(model=ModelConfig(num_layers=6), seed=1))
    assert "--model.num-layers is 12 there and 6 now; --seed is 0 there and 1 now" in str(refusal.value)
    assert str(refusal.value).endswith(f"or another --workdir, or delete it: rm -r {tmp_path}")
    assert (tmp_path / "config.json").read_bytes() == before
    RunDirectory(tmp_path).open(RunConfig(logging={"every": 7}))  # a setting of operation
    assert RunFiles(tmp_path).config.logging.every == 7


def test_a_run_that_is_compared_with_its_start_keeps_its_number_of_held_out_sequences(tmp_path):
    watched = RunConfig(init="some", evaluation={"watch": True, "max_sequences": 64})
    RunDirectory(tmp_path).open(watched)
    under_way(tmp_path)
    with pytest.raises(UsageError, match="--evaluation.max-sequences is 64 there and 16 now"):
        RunDirectory(tmp_path).open(watched.change(evaluation={"max_sequences": 16}))
    RunDirectory(tmp_path).open(watched.change(evaluation={"every": 7}))


def test_a_run_in_a_bucket_is_not_to_be_deleted_by_a_command_for_folders(bucket_server, bucket):
    RunDirectory(f"{bucket}/run").open(RunConfig())
    bucket_server.put(f"{bucket}/run/checkpoints/00000001/manifest.json".removeprefix("gs://"), b"{}")
    with pytest.raises(UsageError, match="or another --workdir, or delete it$"):
        RunDirectory(f"{bucket}/run").open(RunConfig(seed=1))


def test_a_run_in_a_bucket_that_is_opened_again_belongs_to_who_opened_it_last(bucket):
    first, second = (RunDirectory(f"{bucket}/run") for _ in range(2))
    for run in (first, second, first):
        run.open(RunConfig())
        run.check_owner()
        run.close()


def test_a_lost_run_stays_lost_and_its_results_are_those_of_the_new_owner(bucket, bucket_server):
    """Also while the bucket doesn't answer, which otherwise ends no run."""
    first, second = (RunDirectory(f"{bucket}/run") for _ in range(2))
    for run in (first, second):
        run.open(RunConfig())
    with pytest.raises(RunError, match=r"taken over by process \d+ on .*; this one ends"):
        first.write_results(Results())
    del bucket_server.objects[f"{bucket}/run/.owner".removeprefix("gs://")]
    with pytest.raises(RunError, match="taken over by process"):
        first.check_owner()
    second.check_owner()
    assert not first.results_file.exists()


def test_two_processes_do_not_work_on_one_run(tmp_path):
    RunDirectory(tmp_path).open(RunConfig())
    code = (
        "import sys; from bert_jax.config.run import RunConfig\n"
        "from bert_jax.run.run_directory import RunDirectory\n"
        f"run = RunDirectory({str(tmp_path)!r}); run.open(RunConfig()); print('open', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(UsageError, match="another process is working on"):
            RunDirectory(tmp_path).open(RunConfig())
        other.kill()
    RunDirectory(tmp_path).open(RunConfig())  # its lock died with it


def test_a_workdir_that_cannot_be_is_refused(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="--workdir .*file.* can't be written"):
        RunDirectory(tmp_path / "file").open(RunConfig())


def test_another_programs_directory_is_not_overwritten(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "bert"}')
    with pytest.raises(UsageError, match="its config.json is another program's, and would be overwritten; choose"):
        RunDirectory(tmp_path).open(RunConfig())
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
    assert (tmp_path / "config.json").read_text() == '{"model_type": "bert"}'
    (tmp_path / "config.json").write_text("{")  # of a run that hasn't begun
    RunDirectory(tmp_path).open(RunConfig())
    assert RunFiles(tmp_path).config == RunConfig()


@pytest.mark.parametrize(
    "content, words",
    [
        (None, "is no run"),
        ({"schema_version": 99, "config": {}}, "has schema_version 99 and this release reads 1"),
        ({"schema_version": 1, "config": {"self": 1}}, "--self: there is no such setting"),
        ({"schema_version": 1, "config": {"modle": {}}}, "modle: there is no such setting; did you mean model"),
    ],
)
def test_a_config_that_is_not_ours_is_refused(tmp_path, content, words):
    if content:
        (tmp_path / "config.json").write_text(json.dumps(content))
    with pytest.raises(UsageError) as refusal:
        _ = RunFiles(tmp_path).config
    assert words in str(refusal.value)


@pytest.mark.parametrize(
    "content, reason",
    [
        ("{", "it is no JSON"),
        ('{"schema_version": 1, "config": 7}', "it has no settings"),
        ("null", "it holds null and should hold an object"),
    ],
)
def test_a_damaged_config_is_one_line_with_the_remedy(tmp_path, content, reason):
    (tmp_path / "config.json").write_text(content)
    with pytest.raises(RunError, match=f"config.json is damaged .{reason}.*put a good copy in its place: every"):
        _ = RunFiles(tmp_path).config


def test_differences_are_named_down_to_the_field():
    other = RunConfig(phases=(RunConfig().phases[0],), data={"held_out": 0.2})
    assert ("data.held_out", 0.01, 0.2) in differences(RunConfig().flat(), other.flat())
    assert ("phases.1.steps", 100_000, None) in differences(RunConfig().flat(), other.flat())


@pytest.mark.parametrize(
    "url, cleaned",
    [("https://user:secret@host/x", "https://***@host/x"), ("az://box/x?v=1&sig=secret", "az://box/x?v=1&sig=***")],
)
@pytest.mark.parametrize("setting", ["logging.mlflow", "init", "data.source"])
def test_a_password_in_a_setting_is_refused_before_anything_is_written(tiny_config, tmp_path, setting, url, cleaned):
    with pytest.raises(UsageError, match=rf"{setting}(\.0)?={re.escape(cleaned)} holds a user, pass") as refused:
        RunDirectory(tmp_path / "run").open(tiny_config.set({setting: url}))
    assert "secret" not in str(refused.value) and not (tmp_path / "run").exists()
    assert ("MLFLOW_TRACKING_USERNAME" in str(refused.value)) == (setting == "logging.mlflow")


@pytest.mark.parametrize(
    "name", ["corpus.txt", "data/corpus.txt", "tokenizer/vocab.txt", "wandb/x", "data", "results.json"]
)
def test_a_folder_that_holds_other_files_is_refused(tmp_path, name):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("text")
    with pytest.raises(UsageError, match=f"is no run and not empty: it holds '{name.partition('/')[0]}'"):
        RunDirectory(tmp_path).open(RunConfig())
    assert [path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()] == [name]


def test_a_copied_tokenizer_and_copied_data_are_those_of_a_run(tmp_path):
    for name in ("data/length-32/prepared.json", "tokenizer/origin.json"):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("{}")
    RunDirectory(tmp_path).open(RunConfig())


def test_names_that_checkpoints_cannot_be_kept_under_are_refused(tmp_path):
    with pytest.raises(UsageError, match=r"can't be kept in a folder with \\ in its path"):
        RunDirectory(tmp_path / "a\\b")
    for sign in "*?[":
        with pytest.raises(UsageError, match=rf"can't be kept in a folder with \{sign} in its path"):
            RunDirectory(tmp_path / f"a{sign}b").open(RunConfig())
    assert not list(tmp_path.iterdir())
