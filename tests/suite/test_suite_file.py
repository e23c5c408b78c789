"""What a suite's file may say; every fault is one line that names the file, the value and the remedy."""

import re

import pytest
from suite_cases import TASK_TEXT

from bert_jax.cli.config_files import load_config, suite_file, suite_names
from bert_jax.cli.finetune import Finetune
from bert_jax.cli.main import run
from bert_jax.cli.suite import settings_of
from bert_jax.config.run import RunConfig
from bert_jax.suite import suite_file as module
from bert_jax.suite.suite_file import check_heads, read_suite
from bert_jax.suite.suite_tables import SuiteTask, flag_words
from bert_jax.system.errors import UsageError

# ruff: noqa: E501
MODELS = 'models = ["one", "two"]\n'
RECIPE = '[[models]]\nconfig = "experiments/modern"\n'
WRONG = {
    f"{MODELS}{TASK_TEXT}epoch = 3\n": "the task sst2: --task.epoch is no setting of bert-jax finetune; did you mean --task.epochs?",
    f"{MODELS}seed = [0]\n{TASK_TEXT}": "seed: there is no such setting; did you mean seeds?",
    f"{MODELS}{TASK_TEXT}[grid]\n'optimizer.peak-learning-rat' = [1]": "grid, with the task sst2: --optimizer.peak-learning-rat is no setting of bert-jax finetune; did you mean --optimizer.peak-learning-rate?",
    f"{MODELS}{TASK_TEXT}[grid]\n'task.epochs' = []": "grid: task.epochs = [] is no list of values to try",
    f"{MODELS}{TASK_TEXT}[grid]\n'task.epochs' = [-1]": "--task.epochs -1: expected a finite number above 0",
    f"{MODELS}grid = 5\n{TASK_TEXT}": "grid=5: expected a table of settings",
    f"{MODELS}{TASK_TEXT}[grid]\n'task.epochs.x' = [1]": "--task.epochs.x is no setting of bert-jax finetune",
    f'{RECIPE}set = {{"phases.7.steps" = 3}}': "--phases.7.steps: there is no entry 7",
    f"{MODELS}{TASK_TEXT}[budget]\nsteps = 5": "budget is for recipes, and every model is trained",
    f"{RECIPE}[budget]\nsteps = 5\nseconds = 3": "[budget] has steps and seconds; give one of steps, seconds, flops",
    f"{RECIPE}[budget]\nsteps = 0": "budget.steps=0: expected a whole number above 0",
    f'{MODELS}[[tasks]]\nconfig = "sst3"': "no config file at sst3 and no config of that name; did you mean sst2",
    f'{MODELS}[[tasks]]\nconfig = "demo"': "demo is a config of bert-jax pretrain; give one like finetune/sst2",
    f'{MODELS}[[tasks]]\nconfig = "sst2"\npairs = "a"': "the task sst2 has config and pairs; give one of config, pairs, beir",
    f'{MODELS}[[tasks]]\nname = "x"': "the task x has no config; give one of config, pairs, beir",
    f'{MODELS}[[tasks]]\nconfig = "terra"': "the task terra has no train rows; give train = FILE",
    f'{MODELS}{TASK_TEXT}scores = ["pearson"]': "scores of the task sst2: 'pearson' is no metric of its kind; there is accuracy",
    f'{MODELS}{TASK_TEXT.replace("dev.tsv", "absent.tsv")}publisher = "https://x.org"': "sst2: found no absent.tsv in the working directory; give its folder by --data (published at https://x.org)",
    f"{MODELS}{TASK_TEXT}{TASK_TEXT}": "two tasks are called 'sst2'; give each a name of its own",
    f'models = ["one", "./one"]\n{TASK_TEXT}': "two models are called 'one'",
    f"models = 5\n{TASK_TEXT}": "models=5",
    TASK_TEXT: "it names no models; give some: --models RUN FOLDER",
    MODELS: "it has no [[tasks]], and no recipe to pretrain",
    f'[[models]]\nname = "x"\n{TASK_TEXT}': "the model x needs either a path (a trained model) or a config (a recipe)",
    f'[[models]]\npath = "one"\nset = {{"a" = 1}}\n{TASK_TEXT}': "one is trained; begin and set are for a model with a config",
    f'{RECIPE}set = {{"model.num-layer" = 3}}': "modern: --model.num-layer is no setting of bert-jax pretrain; did you mean --model.num-layers?",
    f'{RECIPE}begin = "moder"': "modern begins with: 'moder' is no recipe of the suite; did you mean modern",
    f'{RECIPE}[[models]]\nconfig = "experiments/bert"\nset = {{"vocabulary.size" = 9}}': "bert sets --vocabulary.size=9, but all recipes share the vocabulary",
    f"report = 'train'\n{MODELS}{TASK_TEXT}": "report=train: expected dev or test",
    f"report = 'test'\n{MODELS}{TASK_TEXT}": "the task sst2 has no test rows; give test = FILE",
    f'{MODELS}[[tasks]]\npairs = "train.tsv"\nepochs = 3': "the task train has pairs, and epochs is for a fine-tuning; leave it out",
    f"{MODELS}[[tasks]]\npairs = 'train.tsv'\n[grid]\n'task.epochs' = [1]": "grid has settings of fine-tuning, and no task is fine-tuned",
    f"{MODELS}{TASK_TEXT}seeds = [": "Invalid value (at end of document)",
}


@pytest.mark.parametrize("text", WRONG, ids=lambda text: re.sub(r"\W+", " ", text[-40:]))
def test_each_fault_is_one_line_before_anything_runs(stand_ins, text):
    with pytest.raises(UsageError) as refused:
        stand_ins.run(text)
    message = str(refused.value)
    assert message.startswith(f"{stand_ins.folder}/suite.toml: ") and WRONG[text] in message and "\n" not in message
    assert not stand_ins.given and not (stand_ins.folder / "W").exists()


def test_the_command_line_says_what_is_wrong(stand_ins, capsys):
    (stand_ins.folder / "suite.toml").write_text(MODELS)
    assert run(["suite", "suite.toml", "--workdir", "W"]) == 2
    assert run(["suite", "glu", "--workdir", "W"]) == 2
    assert run(["suite", "absent.toml", "--workdir", "W"]) == 2
    assert run(["suite", "glue", "--workdir", "suite.toml"]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(";")[0] for line in lines] == [
        "bert-jax: suite.toml: it has no [[tasks]], and no recipe to pretrain",
        "bert-jax: no suite file at glu and no suite of that name",
        "bert-jax: no suite file at absent.toml and no suite of that name",
        f"bert-jax: --workdir {stand_ins.folder}/suite.toml: give a folder on this machine, which is created if it is missing",
    ]
    assert "did you mean glue?" in lines[1]


@pytest.mark.parametrize(
    "text", ["#", "\x00", 'models = ["gs://"]', "models = [[1]]", "[models]\nx = 1", 'tasks = "x"']
)
def test_any_other_content_is_refused_in_one_line(stand_ins, text):
    with pytest.raises(UsageError, match=r"suite.toml: [^\n]+$"):
        stand_ins.suite(text)


def test_a_model_must_be_there_and_have_the_head_that_pairs_need(tiny_run, tmp_path):
    (tmp_path / "blimp.jsonl").write_text('{"sentence_good": "a", "sentence_bad": "b"}\n')
    pairs = SuiteTask("blimp", "pairs", (str(tmp_path / "blimp.jsonl"),))
    trained = module.SuiteModel("tiny", str(tiny_run.path))
    check_heads([trained], [pairs])
    with pytest.raises(UsageError, match="absent"):
        check_heads([module.SuiteModel("absent", str(tmp_path / "absent"))], [])
    discriminator = load_config("experiments/modern_electra", RunConfig)
    with pytest.raises(UsageError, match="electra has no head that predicts tokens, and blimp has pairs"):
        check_heads([module.SuiteModel("electra", None, discriminator)], [pairs])


def test_pairs_and_judged_texts_are_looked_at_before_anything_runs(stand_ins, tmp_path):
    (tmp_path / "pairs.jsonl").write_text('{"good": "a", "bad": "b"}\n')
    with pytest.raises(UsageError, match="found no one/corpus.jsonl in the working directory"):
        stand_ins.suite(f'{MODELS}[[tasks]]\nbeir = "one#dev"\n')
    (tmp_path / "one" / "corpus.jsonl.gz").touch()
    assert stand_ins.suite(f'{MODELS}[[tasks]]\nbeir = "one#dev"\n').tasks[0].places == (f"{tmp_path}/one#dev",)
    with pytest.raises(UsageError, match="pairs.jsonl.* has no column 'sentence_good'"):
        check_heads([], [SuiteTask("pairs", "pairs", (str(tmp_path / "pairs.jsonl"),))])


def test_rows_are_found_below_data_at_any_depth_and_compressed(stand_ins):
    folder = stand_ins.folder / "data" / "deep" / "sst2"
    folder.mkdir(parents=True)
    for name in ("train.tsv", "dev.tsv.gz"):
        (folder / name).touch()
    text = f'{MODELS}[[tasks]]\nconfig = "sst2"\n[tasks.files]\ntrain = "sst2/train.tsv"\ndev = "sst2/dev.tsv"\nlabel = "stars"\n'
    with_data = stand_ins.suite(text, data="data").tasks[0].config.task
    assert (with_data.train, with_data.dev) == (str(folder / "train.tsv"), str(folder / "dev.tsv.gz"))
    assert with_data.label == "stars"
    without = stand_ins.suite(text).tasks[0].config.task
    assert (without.train, without.dev, without.label) == ("tfds:glue/sst2:train", "tfds:glue/sst2:validation", "label")
    (folder.parent / "again" / "sst2").mkdir(parents=True)
    (folder.parent / "again" / "sst2" / "train.tsv").touch()
    with pytest.raises(UsageError, match="found 2 files sst2/train.tsv instead of one below"):
        stand_ins.suite(text, data="data")


def test_dev_rows_may_be_a_share_of_the_training_rows(stand_ins):
    (stand_ins.folder / "rows.tsv").touch()
    text = f'{MODELS}[[tasks]]\nconfig = "classes"\nname = "mine"\ntrain = "rows.tsv"\ndev = "20%"\n'
    task = stand_ins.suite(text).tasks[0]
    assert task.config.task.dev == "20%" and task.config.task.dev_source == f"{stand_ins.folder}/rows.tsv"
    assert "--task.dev=20%" in task.command({}, 0)


def test_missing_sets_are_named_with_their_publisher_and_what_is_left(stand_ins):
    (stand_ins.folder / "sst2").mkdir()
    for name in ("train.tsv", "dev.tsv"):
        (stand_ins.folder / "sst2" / name).touch()
    with pytest.raises(UsageError) as refused:
        read_suite(suite_file("glue"), settings_of, ".", models=["one"])
    assert "cola: found no cola/in_domain_train.tsv and no cola/in_domain_dev.tsv below" in str(refused.value)
    assert "(published at https://nyu-mll.github.io/CoLA/)" in str(refused.value)
    assert str(refused.value).endswith("or measure the others alone: --tasks sst2")
    assert [task.name for task in read_suite(suite_file("glue"), settings_of, ".", ["sst2"], models=["one"]).tasks] == [
        "sst2"
    ]
    with pytest.raises(UsageError, match="--tasks: 'sst' is no task of the suite; did you mean sst2"):
        read_suite(suite_file("glue"), settings_of, ".", ["sst"], models=["one"])


@pytest.mark.parametrize("name", suite_names())
def test_suites_that_come_with_it_are_right_but_for_their_files(name, monkeypatch, tmp_path):
    monkeypatch.setattr(module, "find_rows", lambda pattern, data: [f"/rows/{pattern}"])
    monkeypatch.setattr(module, "check_heads", lambda models, tasks: None)
    for data in (None, str(tmp_path)):
        models = () if "[[models]]" in suite_file(name).read_text() else [str(tmp_path)]
        suite = read_suite(suite_file(name), settings_of, data, models=models)
        assert (suite.tasks or suite.recipes) and all(task.places or task.config for task in suite.tasks)


def test_values_are_written_as_flags():
    values = {
        "task.texts": ["a b", "-c"],
        "model.biases": False,
        "data.packed": True,
        "optimizer.peak_learning_rate": 1e-4,
    }
    assert flag_words(values) == (
        *("--task.texts=a b", "--task.texts=-c", "--model.no-biases", "--data.packed"),
        "--optimizer.peak-learning-rate=0.0001",
    )
    words = ["sst2", "--init", "x", "--workdir", "y", *flag_words({"task.texts": ["a b", "-c"]})]
    assert Finetune.parse(words).config.task.texts == ("a b", "-c")
