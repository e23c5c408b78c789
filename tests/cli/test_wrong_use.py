"""Wrong uses of every command: one line each, with the flag as it is typed, the value, and what was expected."""

import re
import subprocess
import sys

import pytest

from bert_jax.cli.commands import arguments_of
from bert_jax.cli.main import run

PRETRAIN = "pretrain demo --workdir W"
FINETUNE = "finetune sst2 --init I --workdir W"

# ruff: noqa: E501
WRONG = {
    # Commands and configs
    "pretrian": "there is no command 'pretrian'; did you mean pretrain?",
    "xyz": "there is no command 'xyz'; choose from pretrain, vocab",
    "pretrain": "give a config first: bert-jax pretrain CONFIG --workdir PATH; bert-jax configs lists",
    "pretrain dmo --workdir W": "no config file at dmo and no config of that name; did you mean demo?",
    "pretrain configs/bsae.py --workdir W": "no config file at configs/bsae.py and no config of that name; did you mean base?",
    "pretrain sst2 --workdir W": "finetune/sst2 is a config of bert-jax finetune; give one like demo",
    "finetune demo --init I --workdir W": "demo is a config of bert-jax pretrain; give one like finetune/sst2",
    "bench vectors": "finetune/vectors is a config of bert-jax finetune; give a run that was fine-tuned with it, or one like demo",
    "finetune ssst2 --workdir W": "did you mean sst2?",
    "configs dmo": "did you mean demo?",
    "configs demo base": "base stands where no value is expected: bert-jax configs takes NAME",
    "--print-completion ksh": "--print-completion ksh: expected bash or zsh or fish",
    "--print-completion": "--print-completion has no value: expected bash or zsh or fish",
    "bench --seed 3": "give a config first: bert-jax bench CONFIG; bert-jax configs",
    # What is missing
    "pretrain demo": "bert-jax: pretrain needs --workdir PATH as well (see --help)",
    "export R": "export lacks DESTINATION; give bert-jax export RUN DESTINATION (see --help)",
    "predict": "predict lacks RUN and INPUT and OUTPUT; give bert-jax predict RUN INPUT OUTPUT",
    "search R in.txt": "search lacks QUERY [QUERY ...]; give bert-jax search RUN CORPUS QUERY",
    "vocab --extend V": "bert-jax: vocab needs --source TEXT, --words PATH or --markers PATH as well",
    f"{PRETRAIN} --model.num-layers": "--model.num-layers has no value; expected a whole number above 0",
    f"{PRETRAIN} --model.num-layers --seed 3": "--model.num-layers has no value",
    f"{PRETRAIN} --data.source": "--data.source has no value; expected one or more, each a text",
    # Names
    f"{PRETRAIN} --model.num-layer 3": "--model.num-layer is no setting of bert-jax pretrain; did you mean --model.num-layers?",
    f"{PRETRAIN} --num-layers 3": "did you mean --model.num-layers?",
    f"{PRETRAIN} --batch-size 3": "did you mean --phases.0.batch-size?",
    f"{PRETRAIN} --model.numlayers=3": "did you mean --model.num-layers?",
    f"{PRETRAIN} --phases.1.steps 3": "--phases.1.steps: there is no entry 1: --phases has 1, numbered from 0; a config file adds one",
    f"{PRETRAIN} --task.train f": "--task.train is no setting of bert-jax pretrain",
    f"{PRETRAIN} -workdir W": "-workdir is no setting of bert-jax pretrain; did you mean --workdir?",
    f"{PRETRAIN} --qqq 3": "--qqq is no setting of bert-jax pretrain; bert-jax pretrain --help-all lists all",
    f"{FINETUNE} --epochs 3": "did you mean --task.epochs?",
    f"{FINETUNE} --data.source text:a": "--data.source is no setting of bert-jax finetune",
    "evaluate R --dat f": "--dat is no setting of bert-jax evaluate; did you mean --data?",
    "evaluate R --language de": "--language de is the language of the --data text; add --data",
    "bench demo --batchsize 3": "did you mean --batch-size?",
    "params demo --json": "--json is no setting of bert-jax params; bert-jax params --help-all lists all",
    f"{PRETRAIN} --gpu": "--gpu is no setting of bert-jax pretrain; bert-jax pretrain --help-all lists all",
    "params demo --model.width 3": "did you mean --model.hidden-size or --model.embedding-size",
    f"{PRETRAIN} --lr 3": "did you mean --optimizer.peak-learning-rate?",
    # Values
    f"{PRETRAIN} --model.num-layers ten": "--model.num-layers ten: expected a whole number above 0",
    f"{PRETRAIN} --model.num_layers ten": "--model.num-layers ten: expected a whole number above 0",
    f"{PRETRAIN} --model.num-layers {'9' * 5000}": "...: expected a whole number above 0",
    f"{PRETRAIN} --phases.0.length 3": "--phases.0.length 3: expected a whole number of at least 8",
    f"{FINETUNE} --task.class-weights": "--task.class-weights has no value; expected finite numbers above 0, or balanced, or None",
    f"{FINETUNE} --task.class-weights 1 0": "--task.class-weights 0: expected finite numbers above 0, or balanced, or None",
    f"{FINETUNE} --task.class-weights Balanced": "expected finite numbers above 0, or balanced, or None; did you mean balanced?",
    f"{FINETUNE} --task.class-weights balanced 3": "--task.class-weights balanced 3: expected finite numbers above 0",
    f"{PRETRAIN} --seed 4294967296": "--seed 4294967296: expected a whole number of at least 0 and below 4,294,967,296",
    f"{PRETRAIN} --optimizer.peak-learning-rate fast": "--optimizer.peak-learning-rate fast: expected a finite number above 0",
    f"{PRETRAIN} --model.dropout 1": "--model.dropout 1: expected a number of at least 0 and below 1",
    f"{PRETRAIN} --execution.remat dot": "--execution.remat dot: expected one of none, full, dots; did you mean dots?",
    f"{PRETRAIN} --data.weights 1 -2": "--data.weights -2: expected finite numbers above 0, or None",
    f"{PRETRAIN} --data.weights 1 None": "--data.weights 1 None: expected finite numbers above 0, or None",
    f"{PRETRAIN} --profile-steps 3-5": "--profile-steps 3-5: expected a text like 100:110, or None",
    f"{PRETRAIN} --vocabulary.strip-accents yes": "--vocabulary.strip-accents yes: expected True or False, or cased, or None",
    f"{PRETRAIN} --logging.tensorboard=false": "--logging.tensorboard=false: it takes no value; --logging.tensorboard is yes and --logging.no-tensorboard is no",
    f"{PRETRAIN} --logging.tensorboard false": "false stands by itself: a switch takes no value",
    f"{PRETRAIN} runs/x": "runs/x stands where no value is expected: bert-jax pretrain takes settings like --NAME VALUE",
    "fill-mask R T --top many": "--top many: expected a whole number",
    "features R in.txt out.npz --layers -1 last": "--layers last: expected whole numbers",
    "features R in.txt out.npz --pool first": "--pool first: expected one of none, cls, mean, max",
    "predict R in.tsv out.tsv --format xls": "--format xls: expected one of csv, tsv, jsonl, conll, conllu, squad, text, parquet, or None",
    "import S R --activation relu": "--activation relu: expected one of gelu_tanh, gelu_erf, silu, or None",
    "bench demo --seconds=nan": "--seconds nan: expected a finite number above 0",
    # Settings that don't fit each other
    f"{PRETRAIN} --mesh.data 16": "--mesh.data=16 x --mesh.fsdp=1 x --mesh.tensor=1 and this machine has 1 device",
    f"{FINETUNE} --probe --layers-frozen 2": "--layers-frozen=2 with --probe: a probe trains the head alone; set --no-probe",
    f"{FINETUNE} --task.kind vectors --task.texts a b --task.mix-layers": "--task.kind=vectors with --task.mix-layers: layers are mixed for a task's head, and it has none",
    "finetune sst2 --workdir W": "--init is not set: give the model to start from",
    f"{PRETRAIN} --objective.units word word": "--objective.units=word word names a kind twice",
    f"{PRETRAIN} --phases.0.units phrase": "--phases.0.units=phrase: no phrases are marked in the data; set --data.phrases to a file of them, or --data.spans to",
    f"{PRETRAIN} --model.generator-divisor 3": "set --model.discriminator, or change --model.generator-divisor",
    f"{PRETRAIN} --hosts.count 2": "--hosts.coordinator=None, --hosts.count=2, --hosts.index=None go together",
}
SETTINGS = {flag.name.replace("-", "_") for name in ("pretrain", "finetune") for flag in arguments_of(name).flags()}
FIELD = re.compile(rf"(?<![\w.-])({'|'.join(name for name in SETTINGS if '.' in name or '_' in name)})(?!\w)")
"""A setting by its name in Python."""


@pytest.mark.parametrize("line", WRONG, ids=lambda line: line[:60])
def test_wrong_use_is_one_line_that_names_flag_value_and_expectation(line, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert run(line.split()) == 2
    shown = capsys.readouterr()
    assert WRONG[line] in shown.err
    assert shown.err.count("\n") == 1 and not shown.out and len(shown.err) < 300
    for words in ("Argument", "invalid literal", "input should", "Traceback"):
        assert words not in shown.err
    assert not FIELD.search(shown.err)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "line, words",
    [
        ("features absent in.txt out.npz --layers -1 -2", "absent; give a run"),
        ("features --layers -1 -2 absent in.txt out.npz", "absent; give a run"),
        ("features absent - out.txt", "features are written to"),
        ("fill-mask absent -- --the-[MASK]", "absent"),
        ("search absent in.txt query --texts a b", "absent; give a run"),
        ("search absent in.txt --texts a query", "absent; give a run"),
        ("search absent in.txt -- --query", "absent; give a run"),
        ("evaluate absent --data=--x.txt", "absent"),
    ],
)
def test_right_uses_that_look_wrong_are_taken(line, words, tmp_path, monkeypatch, refused):
    """Negative numbers, values that begin with hyphens, and words behind --; what they name isn't there."""
    monkeypatch.chdir(tmp_path)
    assert words in refused(*line.split())


ABSENT = [
    *("evaluate ./absent", "evaluate ./absent --data beir:judged", "inspect ./absent", "report ./absent"),
    *("predict ./absent rows.tsv out.jsonl", "score ./absent in.txt", "search ./absent in.txt query"),
    *("fill-mask ./absent text", "export ./absent out"),
    *("finetune classes --init ./absent --workdir W", "finetune classes --init ./absent --workdir W --dry-run"),
    "finetune classes --init ./absent --workdir W --seeds 2 --task.train rows.tsv --task.dev rows.tsv",
    *("verify ./absent", "import ./absent W", "vocab --extend ./absent --words words.txt"),
]
ABSENT_TEXT = [
    *("pretrain demo --workdir W --data.source text:./absent", "pretrain demo --workdir W --data.source ./absent"),
    "pretrain scratch_small --workdir W --data.source ./absent --dry-run",
    "prepare demo --workdir W --data.source ./absent",
    *("vocab demo --workdir W --data.source ./absent", "doctor ./absent"),
]


def test_an_absent_model_or_text_is_refused_before_jax_is_imported(tmp_path):
    lines = [*ABSENT, *ABSENT_TEXT]
    code = "import sys; sys.modules['jax'] = None; from bert_jax.cli.main import run; "
    line = [sys.executable, "-c", f"{code}print([run(line.split()) for line in {lines}])"]
    done = subprocess.run(line, capture_output=True, text=True, cwd=tmp_path)
    said = done.stderr.splitlines()
    assert done.stdout == f"{[2] * len(lines)}\n", said
    first = f"bert-jax: there is nothing at {tmp_path}/absent"
    assert {line.partition("; give a")[0] for line in said[: len(ABSENT)]} == {first}
    assert {line.partition(";")[0] for line in said[len(ABSENT) :]} == {"bert-jax: no file matches './absent'"}
