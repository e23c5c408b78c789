"""What a suite's file may say; every fault is one line that names the file, the value and the remedy."""

import itertools
import json
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest
from suite_cases import TASK_TEXT

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.run import RunConfig
from bert_jax.products.suite import rows
from bert_jax.products.suite.held_out import held_out_config
from bert_jax.products.suite.opening import lacking_heads, with_fitted_recipes, with_opened_models
from bert_jax.products.suite.suite import SuiteModel
from bert_jax.products.suite.suite_file import read_suite
from bert_jax.products.suite.tasks import FineTuning, MinimalPairs
from bert_jax.products.suite.verdict_sentences import verdict_sentences
from bert_jax.run.config_files import catalogue, load_config, suite_file, suite_names
from bert_jax.run.opened_models import OpenedModels
from bert_jax.system.errors import UsageError

# ruff: noqa: E501
MODELS = 'models = ["one", "two"]\n'
RECIPE = '[[models]]\nconfig = "experiments/modern"\n'
MANY = "".join(f"'execution.a{number}' = {list(range(60))}\n" for number in range(5))
WRONG = {
    f"{MODELS}{TASK_TEXT}epoch = 3\n": "the task sst2: --task.epoch: there is no such setting; did you mean epochs?",
    f"{MODELS}seed = [0]\n{TASK_TEXT}": "seed: there is no such setting; did you mean seeds?",
    f"{MODELS}{TASK_TEXT}[grid]\n'optimizer.peak-learning-rat' = [1]": "grid, with the task sst2: --optimizer.peak-learning-rat: there is no such setting; did you mean peak_learning_rate?",
    f"{MODELS}{TASK_TEXT}[grid]\n'task.epochs' = []": "grid: task.epochs = [] is no list of values to try",
    f"{MODELS}grid = 5\n{TASK_TEXT}": "grid=5: expected a table of settings",
    f"{MODELS}{TASK_TEXT}[grid]\n'task.epochs.x' = [1]": "--task.epochs={'x': 1}: expected a finite number above 0",
    f'{RECIPE}set = {{"phases.7.steps" = 3}}': "modern: --phases.7: there is no entry 7: phases has 1, numbered from 0",
    f"{MODELS}{TASK_TEXT}[budget]\nsteps = 5": "budget is for recipes, and every model is trained",
    f"{RECIPE}[budget]\nsteps = 5\nseconds = 3": "[budget] has steps and seconds; give one of steps, seconds, flops",
    f"{RECIPE}[budget]\nsteps = 0": "budget.steps=0: expected a whole number above 0",
    f'{MODELS}[[tasks]]\nconfig = "sst3"': "no config file at sst3 and no config of that name; did you mean sst2",
    f'{MODELS}[[tasks]]\nconfig = "demo"': "demo is a config of bert-jax pretrain; give one like finetune/sst2",
    f'{MODELS}[[tasks]]\nconfig = "sst2"\npairs = "a"': "the task sst2 has config and pairs; give one of config, pairs, beir",
    f'{MODELS}[[tasks]]\nname = "x"': "the task x has no config; give one of config, pairs, beir",
    f'{MODELS}[[tasks]]\nconfig = "terra"': "the task terra: it has no train rows; give train = FILE",
    f'{MODELS}{TASK_TEXT}scores = ["pearson"]': "the task sst2: scores: 'pearson' is no metric of its kind; there is accuracy",
    f'{MODELS}{TASK_TEXT.replace("dev.tsv", "absent.tsv")}publisher = "https://x.org"': "sst2: found no absent.tsv in the working directory; give its folder by --data (published at https://x.org)",
    f"{MODELS}{TASK_TEXT}{TASK_TEXT}": "two tasks are called 'sst2'; give each a name of its own",
    f'models = ["one", "./one"]\n{TASK_TEXT}': "two models are called 'one'",
    f"models = 5\n{TASK_TEXT}": "models=5",
    TASK_TEXT: "it names no models; give some: --models RUN FOLDER",
    MODELS: "it has no [[tasks]], and no recipe to pretrain",
    f'[[models]]\nname = "x"\n{TASK_TEXT}': "the model x needs either a path (a trained model) or a config (a recipe)",
    f'[[models]]\npath = "one"\nset = {{"a" = 1}}\n{TASK_TEXT}': "one is trained; begin, init, tags and set are for a model with a config",
    f'{RECIPE}set = {{"model.num-layer" = 3}}': "modern: --model.num-layer: there is no such setting; did you mean num_layers?",
    f'{RECIPE}begin = "moder"': "modern begins with: 'moder' is no recipe of the suite; did you mean modern",
    f'{RECIPE}[[models]]\nconfig = "experiments/bert"\nset = {{"vocabulary.size" = 9}}': "bert sets vocabulary.size, but all recipes share the vocabulary",
    f"report = 'train'\n{MODELS}{TASK_TEXT}": "report=train: expected dev or test",
    f"report = 'test'\n{MODELS}{TASK_TEXT}": "the task sst2: it has no test rows; give test = FILE",
    f'{MODELS}[[tasks]]\npairs = "train.tsv"\nepochs = 3': "the task train: it has pairs, and epochs doesn't go with that; leave it out",
    f"{MODELS}[[tasks]]\npairs = 'train.tsv'\n[grid]\n'task.epochs' = [1]": "grid has settings of fine-tuning, and no task is fine-tuned",
    f"{MODELS}{TASK_TEXT}seeds = [": "Invalid value (at end of document)",
    f"seeds = [0, 1, 0]\n{MODELS}{TASK_TEXT}": "seeds has 0 twice; give each once",
    f"seeds = [4294967296]\n{MODELS}{TASK_TEXT}": "seeds.0=4294967296",
    f"seeds = [true]\n{MODELS}{TASK_TEXT}": "seeds.0=True",
    f"seeds = []\n{MODELS}{TASK_TEXT}": "seeds=[]",
    f"units = []\n{RECIPE}": "units=[]",
    f'units = ["word", "word"]\n{RECIPE}': "units has word twice; give each once",
    f'units = ["phrase"]\n{RECIPE}': "modern can't be measured on the held-out sequences of modern, masked by phrase: --objective.units=phrase: no phrases are marked in the data",
    f"{MODELS}{TASK_TEXT}[grid]\n'task.epochs' = [3, 3.0]": "grid: task.epochs has 3 twice; give each value once",
    f"{MODELS}{TASK_TEXT}[grid]\n'task.batch-size' = [3]\n'task.batch_size' = [4]": "grid has task.batch-size twice; give it once",
    f"{MODELS}{TASK_TEXT}[grid]\n'task.metric' = ['accuracy', 'f1']": "grid has task.metric: scores by different ones can't be compared",
    f"{MODELS}{TASK_TEXT}[grid]\n'task.epochs=3' = [1]": "--task.epochs=3: there is no such setting; did you mean epochs?",
    f"{MODELS}{TASK_TEXT}set = {{optimizer.warmup = 0.1}}": 'the task sst2: set has a table optimizer; name single settings: "optimizer.warmup"',
    f"{MODELS}{TASK_TEXT}set = {{'optimizer.power' = 2.0}}": "the task sst2: --optimizer.power=2.0 has no effect: it needs --optimizer.schedule=polynomial; leave it out",
    f"{MODELS}{TASK_TEXT}[grid]\n'optimizer.decay-share' = [0.1]": "grid, with the task sst2: --optimizer.decay-share=0.1 has no effect",
    f"{RECIPE}set = {{'data.smoothing' = 0.5}}": "modern: --data.smoothing=0.5 has no effect",
    f'{RECIPE}begin = "bert"\n[[models]]\nconfig = "experiments/bert"\n': "modern and bert take half of a budget each; add [budget]",
    f'{RECIPE}begin = "bert"\n[[models]]\nconfig = "experiments/bert"\nbegin = "modern"': "modern begins with bert, which begins with modern; name another",
    '[[models]]\nconfig = "base"\n[[models]]\nconfig = "tiny"\nset = {"model.max-positions" = 64, "phases.0.length" = 64, "phases.1.length" = 64}': "tiny can't be measured on the held-out sequences of base, masked by piece: --phases.0.length=128 is more than --model.max-positions=64",
    f"{MODELS}{TASK_TEXT}[grid]\n{MANY}": "grid has 777,600,000 combinations, and a suite tries at most 1,000; give fewer values",
    **{
        f"{MODELS}{TASK_TEXT}[grid]\n'task.epochs' = [{one!r}, {other!r}]": "are the same settings; leave one out"
        for one, other in (("3", "3.0"), (0.03, "3e-2"))
    },
    **{
        f'{MODELS}{TASK_TEXT}name = "{name}"': f"the task {name} has a name that every suite uses itself; give it another"
        for name in ("average", "rank", "pretraining", "held-out tokens, LM")
    },
    **dict.fromkeys(("#", "\x00", 'models = ["gs://"]', "models = [[1]]", "[models]\nx = 1", 'tasks = "x"'), ""),
}
ELSEWHERE = {
    "seed": "the suite's seeds",
    "seeds": "the suite's seeds",
    "init": "the suite's models",
    "from-random": "bert-jax finetune outside of a suite",
    "hosts.coordinator": "outside of a suite",
    "data.words": "a config, which may name a function of a program",
    "objective.class_name": "bert_jax.pretrain(objective=...)",
    "task.train": "the task's train = ROWS",
    "task.dev": "the task's dev = ROWS",
    "task.test": "the task's test = ROWS",
    "task.other-dev": "the task's other-dev = ROWS",
}


@pytest.mark.parametrize("name", ELSEWHERE)
@pytest.mark.parametrize("where", ["grid", "set of a task", "set of a recipe"])
def test_what_is_set_elsewhere_is_refused_with_its_place(stand_ins, name, where):
    texts = {
        "grid": f"{MODELS}{TASK_TEXT}[grid]\n'{name}' = [1, 2]",
        "set of a task": f"{MODELS}{TASK_TEXT}set = {{'{name}' = 1}}",
        "set of a recipe": f"{RECIPE}set = {{'{name}' = 1}}",
    }
    with pytest.raises(UsageError) as refused:
        stand_ins.run(texts[where])
    place, name = ELSEWHERE[name], name.replace("_", "-")
    assert re.search(rf"(grid|the task sst2: set|set of modern) has {name}, which is set by ", str(refused.value))
    assert place in str(refused.value) and not stand_ins.given


PRETRAININGS = {name: config.config for name, config in catalogue().items() if isinstance(config.config, RunConfig)}


def test_every_pair_of_recipes_can_be_compared_or_is_refused_for_its_length():
    """The figures of a model come from its own question about tokens, whatever the first recipe learns."""
    experiments = [name for name in PRETRAININGS if name.startswith("experiments/")]
    assert len(experiments) ** 2 == 256
    for (first, one), (second, other) in itertools.product(PRETRAININGS.items(), PRETRAININGS.items()):
        length, positions = one.phases[0].length, other.model.max_positions
        if length > positions:
            assert not {first, second} <= set(experiments)
            with pytest.raises(UsageError, match=f"length={length} is more than --model.max-positions={positions}"):
                held_out_config(other, one, "piece")
            continue
        config = held_out_config(other, one, "piece")
        assert config.objective.predict == other.objective.predict and config.model == other.model
        assert config.data == one.data and config.seed == one.seed and config.phases[0].length == length
        shared = ("evaluated_share", "mask_probability", "random_probability", "replaced_by")
        assert all(getattr(config.objective, name) == getattr(one.objective, name) for name in shared)


@pytest.mark.parametrize(
    "vocabulary, setting, value",
    [
        ("shared", "data.held-out", "0.05"),
        ("shared", "data.layout", '"sentences"'),
        ("own", "data.held-out", "0.05"),
        ("own", "data.min-doc-words", "20"),
        ("own", "objective.evaluated-share", "0.3"),
        ("own", "objective.units", '"word"'),
    ],
)
def test_recipes_whose_held_out_text_differs_are_refused(stand_ins, vocabulary, setting, value):
    """Otherwise one may have trained on what another is measured on, or each is measured on text of its own."""
    second = f'[[models]]\nname = "other"\nconfig = "experiments/bert"\nset = {{ "{setting}" = {value} }}\n'
    with pytest.raises(UsageError, match=f"other and bert can't be measured on the same held-out text, as --{setting}"):
        stand_ins.suite(f'vocabulary = "{vocabulary}"\n[[models]]\nconfig = "experiments/bert"\n{second}')


def test_recipes_may_drop_other_documents_than_the_first(stand_ins):
    second = '[[models]]\nname = "other"\nconfig = "experiments/bert"\nset = { "data.min-doc-words" = 20 }\n'
    assert len(stand_ins.suite(f'[[models]]\nconfig = "experiments/bert"\n{second}').models) == 2


def test_recipes_are_compared_by_what_they_learned(stand_ins):
    models = "".join(f'[[models]]\nconfig = "experiments/{name}"\n' for name in ("bert", "modern", *OTHER_QUESTIONS))
    suite = stand_ins.suite(f'units = ["piece", "word"]\n{models}')
    assert list(suite.measured) == [
        *("held-out tokens", "held-out tokens, word", "held-out tokens, LM", "held-out tokens, PLM"),
        *("held-out tokens, PLM, word", "held-out tokens, biLM", "held-out tokens, RTD"),
    ]
    summary = stand_ins.run(f'units = ["piece", "word"]\n{models}')
    assert summary.cells.keys() == suite.measured.keys()
    for units in ("", ", word"):
        assert summary.cells[f"held-out tokens{units}"].keys() == {"bert", "modern"}
    assert any("none in other columns" in text for _, text in verdict_sentences(summary))
    for name, kind in OTHER_QUESTIONS.items():
        assert summary.cells[f"held-out tokens, {kind}"].keys() == {name}


OTHER_QUESTIONS = {"left_to_right": "LM", "contrast_xlnet": "PLM", "contrast_elmo": "biLM", "modern_electra": "RTD"}


@pytest.mark.parametrize(
    "text",
    [
        "x = " + "[" * 5000 + "]" * 5000,
        "x = " + "{a = " * 3000 + "1" + "}" * 3000,
        "a" + ".a" * 50_000 + " = 1",
        "[" + ".".join(["a"] * 50_000) + "]",
        "x = {" + " . ".join(['"="', "a", "'b'", '"\\""'] * 20_000) + " = 1}",
        "[[" + ".".join(["a"] * 100) + "]]",
        "a" + ".a" * 70 + " = 1",
    ],
    ids=["arrays", "tables", "key", "header", "quoted", "array of tables", "70 dots"],
)
def test_deep_nesting_is_one_line(stand_ins, text):
    began = time.monotonic()
    with pytest.raises(UsageError, match=r"suite.toml: it is nested more than 64 deep$"):
        stand_ins.suite(text)
    assert time.monotonic() - began < 2


def test_a_large_file_is_refused_and_names_with_many_dots_are_not(stand_ins):
    with pytest.raises(UsageError, match=r"suite.toml: it has more than 1,000,000 bytes"):
        stand_ins.suite("#" * 1_000_001)
    files = [f"text:some/a.b.{number}.txt" for number in range(3000)]
    suite = stand_ins.suite(f"source = {json.dumps(files)} # {'a sentence. ' * 100}\n{RECIPE}")
    assert len(suite.tables.source) == 3000


@pytest.mark.parametrize(
    "kind, path",
    [
        *(("train", path) for path in ("/", "**", "a" * 5000, "a/" * 3000, ".", "\\u0000")),
        *((kind, path) for kind in ("pairs", "beir") for path in ("", "/", "**", "a" * 5000, "a/" * 3000)),
        *((kind, "/**/*/**/*/**/x") for kind in ("train", "pairs", "beir")),
    ],
)
def test_what_cannot_be_a_path_of_rows_is_one_line(stand_ins, kind, path):
    table = f'[[tasks]]\n{kind} = "{path}"\n'
    began = time.monotonic()
    words = r"suite.toml: .*(found (no|a folder) |more than twice|has no config|too long)[^\n]*$"
    with pytest.raises(UsageError, match=words):
        stand_ins.suite(MODELS + (TASK_TEXT.replace("train.tsv", path) if kind == "train" else table))
    assert time.monotonic() - began < 5


def test_a_pattern_with_asterisks_in_a_row_is_found_at_once(stand_ins):
    folder = stand_ins.folder / "deep" / Path(*"abcdefghijklmnopqrst")
    folder.mkdir(parents=True)
    (folder / "x.jsonl").touch()
    began = time.monotonic()
    assert rows.find_rows("deep/" + "**/" * 8 + "*.jsonl", None) == [str(folder / "x.jsonl")]
    assert time.monotonic() - began < 5


def test_a_grid_of_a_thousand_combinations_is_checked_in_seconds(stand_ins):
    began = time.monotonic()
    suite = stand_ins.suite(f"{MODELS}{TASK_TEXT}[grid]\n'task.epochs' = {list(range(1, 1001))}")
    assert len(suite.settings) == 1000 and time.monotonic() - began < 20


def test_rows_are_not_looked_for_behind_links_nor_in_a_whole_disk(stand_ins, monkeypatch):
    (stand_ins.folder / "data").mkdir()
    for name in ("loop", "again"):
        (stand_ins.folder / "data" / name).symlink_to(stand_ins.folder)
    text = f'{MODELS}[[tasks]]\nconfig = "sst2"\n[tasks.files]\ntrain = "train.tsv"\ndev = "dev.tsv"\n'
    where = f"found no train.tsv and no dev.tsv below {stand_ins.folder}/data, where links to folders aren't followed"
    with pytest.raises(UsageError, match=where):
        stand_ins.suite(text, data="data")
    (stand_ins.folder / "data" / "train.tsv").symlink_to(stand_ins.folder / "train.tsv")  # a file may be a link
    (stand_ins.folder / "data" / "dev.tsv").symlink_to(stand_ins.folder / "dev.tsv")
    assert stand_ins.suite(text, data="data").tasks[0].config.task.dev == f"{stand_ins.folder}/data/dev.tsv"
    assert stand_ins.suite(text.replace('"train.tsv"', f'"{stand_ins.folder}/train.tsv"'), data="data")
    monkeypatch.setattr(rows, "_MOST_FILES", 5)
    for number in range(6):
        (stand_ins.folder / "data" / str(number)).touch()
    with pytest.raises(UsageError, match=r"/data has more than 5 files to search; give the folder of the rows alone"):
        stand_ins.suite(text, data="data")
    began = time.monotonic()
    with pytest.raises(UsageError, match="/ has more than"):
        stand_ins.suite(text, data="/")
    with pytest.raises(UsageError, match="/ has more than 5 files to search"):
        stand_ins.suite(f'{MODELS}[[tasks]]\npairs = "/**/pairs.jsonl"\n')
    assert time.monotonic() - began < 20


def test_a_split_of_a_public_set_must_be_there(tmp_path, monkeypatch):
    monkeypatch.setenv("TFDS_DATA_DIR", str(tmp_path))
    config = load_config("sst2", FinetuneConfig)
    assert config.task.train.startswith("tfds:"), config.task
    with pytest.raises(UsageError, match="glue/sst2"):
        FineTuning(name="sst2", config=config).check()


@pytest.mark.parametrize("text", WRONG, ids=lambda text: re.sub(r"\W+", " ", text[-40:]))
def test_each_fault_is_one_line_before_anything_runs(stand_ins, text):
    with pytest.raises(UsageError) as refused:
        stand_ins.run(text)
    message = str(refused.value)
    assert message.startswith(f"{stand_ins.folder}/suite.toml: ") and WRONG[text] in message and "\n" not in message
    assert not stand_ins.given and not (stand_ins.folder / "W").exists()


REFUSED = {
    "absent.toml": "no suite file at absent.toml and no suite of that name",
    "glu": "no suite file at glu and no suite of that name; did you mean glue?",
    "small_language": "'as it is,' begins with each of --models, and there is none; give some: --models FOLDER",
    "right.toml --workdir right.toml": "--workdir {}/right.toml: give a folder on this machine",
    "right.toml --workdir one": "--workdir {}/one is no suite's folder and not empty",
    "right.toml --at-once 9999": "--at-once 9999: ",
    "right.toml --tasks sst": "right.toml: --tasks: 'sst' is no task of the suite; did you mean sst2?",
    "right.toml --models ./absent": "right.toml: there is nothing at {}/absent; give a run, a checkpoint or ",
    "right.toml --data two": "right.toml: sst2: found no train.tsv and no dev.tsv below {}/two",
    "key.toml": "key.toml: seed: there is no such setting; did you mean seeds?",
    "grid.toml": "grid.toml: grid: task.epochs = 3 is no list of values to try",
    "text.toml": "text.toml: modern: no file matches 'absent.txt'",
    "adapted.toml": "adapted.toml: there is nothing at {}/absent; give a run, a checkpoint or ",
    "scratch.toml": "scratch.toml: scratch_small: no file matches 'absent.txt'",
    "tasks.toml --task.train rows.tsv": "tasks.toml: tasks=",
    "columns.toml": "columns.toml: {}/train.tsv, line 2 has no column 'phrase'",
    "labels.toml": "labels.toml: {}/train.tsv has no 'stars' in any row",
}


def test_what_files_tell_is_refused_before_jax_is_imported(stand_ins):
    (stand_ins.folder / "one" / "config.json").touch()
    texts = {
        "right": MODELS + TASK_TEXT,
        "key": f"seed = [0]\n{MODELS}{TASK_TEXT}",
        "grid": f"{MODELS}{TASK_TEXT}[grid]\n'task.epochs' = 3\n",
        "text": f'source = "absent.txt"\n[[models]]\npath = "one"\n{RECIPE}{TASK_TEXT}',
        "adapted": '[[models]]\nconfig = "adapt"\ninit = "./absent"\n',
        "scratch": 'source = "absent.txt"\n[[models]]\nconfig = "scratch_small"\n',
        "tasks": f'tasks = "sst2"\n{MODELS}',
        "columns": f'{MODELS}{TASK_TEXT}texts = ["phrase"]\n',
        "labels": f'{MODELS}{TASK_TEXT}label = "stars"\n',
    }
    for name, text in texts.items():
        (stand_ins.folder / f"{name}.toml").write_text(text)
    lines = [["suite", *case.split(), *([] if "--workdir" in case else ["--workdir", "W"])] for case in REFUSED]
    code = "import sys; sys.modules['jax'] = None; from bert_jax.cli.main import run; "
    line = [sys.executable, "-c", f"{code}print([run(line) for line in {lines}])"]
    done = subprocess.run(line, capture_output=True, text=True)
    said = done.stderr.splitlines()
    assert done.stdout == f"{[2] * len(REFUSED)}\n", said
    for line, expected in zip(said, REFUSED.values(), strict=True):
        assert expected.format(stand_ins.folder) in line
    assert all("suite has no flag --task." in line and "as texts = [...]" in line for line in said[-2:]), said[-2:]


def test_a_model_must_be_there_and_have_the_head_that_pairs_need(tiny_run, tmp_path):
    (tmp_path / "blimp.jsonl").write_text('{"sentence_good": "a", "sentence_bad": "b"}\n')
    pairs = MinimalPairs(name="blimp", pairs=str(tmp_path / "blimp.jsonl"))
    trained = SuiteModel("tiny", str(tiny_run.path))
    assert lacking_heads([trained], [pairs], OpenedModels()) == {}
    with pytest.raises(UsageError, match="absent"):
        lacking_heads([SuiteModel("absent", str(tmp_path / "absent"))], [], OpenedModels())
    discriminator = load_config("experiments/modern_electra", RunConfig)
    electra = SuiteModel("electra", None, discriminator)
    lacking = {("electra", "blimp"): "has no head that predicts tokens"}
    assert lacking_heads([trained, electra], [pairs], OpenedModels()) == lacking
    with pytest.raises(UsageError, match="no model can be measured on blimp: each has no head that predicts tokens"):
        lacking_heads([electra], [pairs], OpenedModels())


def test_opened_models_tell_which_are_causal(tiny_run, stand_ins):
    recipes = '[[models]]\nconfig = "experiments/left_to_right"\n[[models]]\nconfig = "experiments/full_sentences"\n'
    suite = stand_ins.suite(f'{recipes}[[models]]\npath = "{tiny_run.path}"\n')
    assert not suite.causal and with_opened_models(suite).causal == {"left_to_right"}


def test_pairs_and_judged_texts_are_looked_at_before_anything_runs(stand_ins, tmp_path):
    (tmp_path / "pairs.jsonl").write_text('{"good": "a", "bad": "b"}\n')
    with pytest.raises(UsageError, match="found no one/corpus.jsonl and no one/queries.jsonl and no one/qrels/dev.tsv"):
        stand_ins.suite(f'{MODELS}[[tasks]]\nbeir = "one#dev"\n')
    stand_ins.judged("one", "dev")
    (tmp_path / "one" / "corpus.jsonl").rename(tmp_path / "one" / "corpus.jsonl.gz")
    assert stand_ins.suite(f'{MODELS}[[tasks]]\nbeir = "one#dev"\n').tasks[0].sources == (f"beir:{tmp_path}/one#dev",)
    with pytest.raises(UsageError, match="one#test: found no one/qrels/test.tsv in the working directory"):
        stand_ins.suite(f'{MODELS}[[tasks]]\nbeir = "one#test"\n')
    with pytest.raises(UsageError, match="mine: found no one/qrels/train.tsv in the working directory"):
        vectors = 'config = "vectors"\nname = "mine"\ndev = "beir:one#dev"'
        stand_ins.suite(f'{MODELS}[[tasks]]\n{vectors}\ntrain = "beir:one"\n')
    trained = stand_ins.suite(f'{MODELS}[[tasks]]\n{vectors}\ntrain = "beir:one#dev"\n').tasks[0].config.task
    assert (trained.train, trained.dev) == (f"beir:{tmp_path}/one#dev",) * 2
    with pytest.raises(UsageError, match="pairs.jsonl.* has no column 'sentence_good'"):
        MinimalPairs(name="pairs", pairs=str(tmp_path / "pairs.jsonl")).check()


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
    assert task.trained({}).task.dev == "20%"


def test_missing_sets_are_named_with_their_publisher_and_what_is_left(stand_ins):
    (stand_ins.folder / "sst2").mkdir()
    for name in ("train.tsv", "dev.tsv"):
        (stand_ins.folder / "sst2" / name).touch()
    with pytest.raises(UsageError) as refused:
        read_suite(suite_file("glue"), ".", models=["one"])
    assert "cola: found no cola/in_domain_train.tsv and no cola/in_domain_dev.tsv below" in str(refused.value)
    assert "(published at https://nyu-mll.github.io/CoLA/)" in str(refused.value)
    assert str(refused.value).endswith("or measure the others alone: --tasks sst2")
    assert [task.name for task in read_suite(suite_file("glue"), ".", ["sst2"], models=["one"]).tasks] == ["sst2"]


@pytest.mark.parametrize("name", suite_names())
def test_suites_that_come_with_it_are_right_but_for_their_files(name, monkeypatch, tmp_path, tiny_run, corpus):
    monkeypatch.setattr(rows, "find_rows", lambda pattern, data: [f"/rows/{pattern}"])
    for data in (None, str(tmp_path)):
        text = suite_file(name).read_text()
        models = () if "[[models]]" in text and '"each"' not in text else [str(tiny_run.path)]
        source = (f"text:{corpus}",) if '"each"' in text else ()  # from which the sizes of a recipe follow
        suite = with_fitted_recipes(read_suite(suite_file(name), data, models=models, source=source), OpenedModels())
        assert (suite.tasks or suite.recipes) and all(task.sources for task in suite.tasks)
