"""Wrong uses of commands on files and runs: one line each, and nothing is written."""

# ruff: noqa: E501

import shlex

import numpy as np
import pytest
from judged_folders import JUDGMENTS, write_judged_folder

from bert_jax.cli.main import _lacking

PIECES = "[PAD]\n[UNK]\n[CLS]\n[SEP]\n[MASK]\n"
FILES = {
    "lines.txt": "The old cat.\n\nA house.\nThe old cat.\nA river.\n",
    "two.txt": "a\nb\n",
    "one.txt": "One document.",
    "empty.txt": "",
    "blank.txt": "\n \n",
    "bodies.jsonl": '{"body": "The old cat."}\n',
    "table.tsv": "a\tb\nx\ty\n",
    "ragged.csv": "body,n\na,1\nb,2,3\n",
    "tags.conll": "x O\n",
    "bare": "x\n",
    "vocab.txt": f"{PIECES}a\n",
    "cased.txt": f"{PIECES}A\n",
    "known.txt": "a\n",
    "markers.txt": "[E11]\n",
    "three.py": "config = 3",
    "misspelt.py": "from bert_jax.config.model import ModelConfig\nModelConfig(num_layer=3)",
    "broken.py": "config = (",
    "importing.py": "import absent_module",
}
NPZ = {
    "wide": np.ones((3, 64), np.float32),
    "narrow": np.ones((3, 8), np.float32),
    "ok": np.ones((3, 32), np.float32),
    "none": np.ones((0, 32), np.float32),
}
REFUSALS = {
    # Configs
    "pretrain three.py --workdir R": "builds no RunConfig named `config`",
    "pretrain misspelt.py --workdir R": "--model.num-layer: there is no such setting; did you mean num_layers?",
    "pretrain broken.py --workdir R": "SyntaxError",
    "pretrain importing.py --workdir R": "ModuleNotFoundError: No module named 'absent_module'",
    "pretrain lines.txt --workdir R": "lines.txt is no config: give a Python file (.py), a name or a run (bert-jax configs lists the names); what to learn from is given by --data.source lines.txt",
    "finetune lines.txt --workdir R": "what to learn from is given by --task.train lines.txt",
    # Text to train and to measure on
    "pretrain {config} --workdir R --data.source empty.txt": "holds no text",
    "pretrain {config} --workdir '' --data.source empty.txt": "a path is empty",
    "pretrain {config} --workdir bare --data.source empty.txt": "bare is a file; give a folder",
    "evaluate {run} --data one.txt": "holds 1 document and next sentence prediction needs two",
    "evaluate {run} --data blank.txt": "holds no text; give another",
    "evaluate {run} --data lines.txt --words a:b": "was prepared without such a program; leave it out",
    "doctor empty.txt": "--data.source='empty.txt' holds no text; give another",
    "doctor one.txt": "holds 1 document for training and next sentence prediction needs two",
    "doctor one.txt --models absent/model": "there is no folder",
    "doctor one.txt --minutes 0": "--minutes 0: expected a finite number above 0",
    # Counts
    "inspect {run} --rows 0": "--rows 0: expected a whole number above 0",
    "fill-mask {run} 'a [MASK]' --candidates": "--candidates names no word; give some, or leave it out",
    # Vocabularies
    "vocab --extend vocab.txt --words absent": "no file of words at",
    "vocab --extend vocab.txt --words known.txt": "adds nothing to",
    "vocab --extend cased.txt --words two.txt": "has pieces with capitals and words would be lower-cased; add --no-lowercase",
    "vocab --extend vocab.txt --words two.txt --output vocab.txt": "exists already; choose another --output",
    "vocab --extend vocab.txt --words two.txt --output x.model": "a wordpiece vocabulary is written as vocab.txt",
    "vocab --extend vocab.txt --words two.txt --output absent/x.txt": "there is no directory",
    "vocab --extend vocab.txt --markers markers.txt --output x.txt": "a wordpiece vocabulary is written as tokenizer.json",
    "vocab --extend vocab.txt --words two.txt --count 3": "--count=3 has no effect without --source",
    "vocab --extend {run} --words two.txt --lowercase": "--lowercase has no effect",
    # Texts to search
    "search {vectors} lines.txt q --lines lines.txt": "lines.txt has texts itself, and --lines=lines.txt is for a .npz file",
    "search {vectors} absent.txt q": "absent.txt can't be read (No such file or directory)",
    "search {vectors} . q": "can't be read (Is a directory)",
    "search {vectors} none.npz q": "none.npz has nothing to search",
    "search {vectors} wide.npz q": "wide.npz has vectors of 64 numbers, and those of this search have 32; give a file that",
    "search {vectors} narrow.npz q": "vectors of 8 numbers, and those of this search have 32; search with --width=8, or",
    "search {vectors} narrow.npz q --width 16": "narrow.npz has vectors of 8 numbers, and those of this search have 16; give",
    "search {vectors} ok.npz q --texts body": "ok.npz has no columns of texts; add --lines=FILE",
    "search {vectors} ok.npz q --lines two.txt": "ok.npz has 3 vectors and two.txt has only 2 texts; give the file",
    "search {vectors} ok.npz q --lines lines.txt": "ok.npz has 3 vectors and lines.txt has more texts; give the file",
    # Texts whose vectors are written
    "features {run} table.tsv out.npz": "table.tsv has the columns 'a', 'b'; name that of the texts by --texts",
    "features {run} table.tsv out.npz --texts c": "line 2 has no column 'c': there is 'a', 'b'; name columns",
    "features {run} tags.conll out.npz --texts words": "tags.conll has words and no texts; give a text a line",
    "features {run} two.txt out.npz --texts a b c": "--texts a b c are 3 columns; give one, or a pair's two",
    "features {run} bare out.npz --texts a": "its name doesn't tell how it is written; name it .csv, .tsv, .jsonl or",
    "features {run} absent.txt out.npz": "absent.txt can't be read",
    "features absent - out.npz --texts a": "standard input holds a text a line and has no columns",
    "features absent bodies.jsonl bodies.jsonl --texts a": "bodies.jsonl is the input",
    "features {vectors} two.txt out.npz --width 8 --pool mean": "--width is for the vectors that a run was trained for, and --pool for",
    # Texts and pairs that are scored
    "score {run} lines.txt lines.txt": "lines.txt is the input (lines.txt); choose another output",
    "score {run} lines.txt scores.csv": "scores.csv: scores are written as JSON lines; name it .jsonl",
    "score {run} lines.txt no/scores.jsonl": "there is no folder",
    "score {run} jsonl:bodies.jsonl#body bodies.jsonl": "bodies.jsonl is the input",
    "score {run} jsonl:bod*.jsonl#body bodies.jsonl": "bodies.jsonl is the input",
    "score {run} empty.txt scores.jsonl": "empty.txt has no text to score; give some",
    "score {run} missing.txt": "missing.txt can't be read (No such file or directory)",
    "score {run} text:missing.txt": "no file matches",
    "score {run} jsonl:bodies.jsonl": "--data.source='jsonl:bodies.jsonl' lacks #FIELD",
    "score {run} ragged.csv --texts body": "(score has no flag --task.columns and --task.separator: change the input)",
    "score {run}": "lacks INPUT; give bert-jax score RUN INPUT",
    "score {run} --pairs bodies.jsonl --columns body": "--columns body: two columns are needed, that of the acceptable",
    "score {run} --pairs bodies.jsonl --columns body body": "--columns body body: two columns are",
    "score {run} --pairs bodies.jsonl --tokens": "--tokens is no setting of bert-jax score",
    # Judged texts
    "evaluate {run} --data beir:judged --units word": "--units doesn't apply to judged texts, beir:",
    "evaluate {run} --data beir:judged --format jsonl": "--format doesn't apply to judged texts, beir:",
    "finetune vectors --init {run} --workdir R --task.train beir:judged --task.dev beir:judged": "qrels has no file 'dev'",
    "finetune vectors --init {run} --workdir R --task.train beir:judged --task.dev beir:judged#test --task.metric recall@1": "recall@1",
    "finetune sst2 --init {run} --workdir R --task.train beir:judged --task.dev beir:judged#test": "has no column 'label'",
}


@pytest.mark.parametrize(
    "name, words, message",
    [
        ("pretrain", ["demo", "--data.sorce", "x"], "--data.sorce is no setting; did you mean --data.source?"),
        ("score", ["run"], "train it on text: bert-jax pretrain MODEL --init MODEL --data.source TEXT"),
        ("predict", ["run"], "rename it, or name it by --task.texts or --task.label of finetune"),
    ],
)
def test_flags_of_other_commands_and_misspelled_ones_are_no_advice(name, words, message):
    assert not _lacking(name, words, message)
    assert "score has no flag --task.columns" in _lacking("score", ["run"], "set --task.columns")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    for name, content in FILES.items():
        (folder / name).write_text(content)
    for name, vectors in NPZ.items():
        np.savez(folder / f"{name}.npz", vectors=vectors)
    for split in ("test", "train"):
        write_judged_folder(folder / "judged", JUDGMENTS, split)
    return folder


@pytest.mark.parametrize("line", REFUSALS)
def test_wrong_use_is_one_line_and_writes_nothing(
    line, folder, tiny_run, vectors_run, config_file, refused, monkeypatch
):
    monkeypatch.chdir(folder)
    before = {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")}
    places = {"run": tiny_run.path, "vectors": vectors_run.path, "config": config_file}
    assert REFUSALS[line].format(**places) in refused(*shlex.split(line.format(**places)))
    assert {path: path.is_file() and path.read_bytes() for path in folder.rglob("*")} == before
