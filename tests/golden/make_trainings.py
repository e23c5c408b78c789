"""Makes the golden files in `trainings/` beside it: what pretraining, each kind of task, features and predict gave.

    python tests/golden/make_trainings.py             # writes all of them
    python tests/golden/make_trainings.py --figures   # losses.json and outputs.json alone, where figures are to change
    python tests/golden/make_trainings.py --compare   # by how much each figure differs as the code is now

`trainings/` has the text and rows that everything is made from, `pretrained` (a run as it lies on disk, with data,
tokenizer and two checkpoints), `losses.json` (20 steps of each training, by name) and `outputs.json` (of commands on
`pretrained` and on runs fine-tuned from it). Every path in it is relative to `trainings/`.
"""

import contextlib
import json
import os
import random
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

os.environ["JAX_PLATFORMS"] = "cpu"
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")  # as the tests have it, and the next
os.environ.setdefault("BERT_JAX_AUTO_DTYPE", "float32")

import numpy as np

import bert_jax
from bert_jax.cli.main import run as command
from bert_jax.config.data import DataConfig, VocabularyConfig
from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.operation import (
    CheckpointConfig,
    EvaluationConfig,
    ExecutionConfig,
    LoggingConfig,
    PreparationConfig,
)
from bert_jax.config.run import RunConfig
from bert_jax.config.task import SpanConfig, TaskConfig
from bert_jax.config.training import OptimizerConfig, Phase
from bert_jax.finetuning.finetune import finetune
from bert_jax.pretraining.pretrain import pretrain
from bert_jax.run.metrics import read_metrics
from bert_jax.run.run_directory import RunDirectory

TRAININGS = Path(__file__).parent / "trainings"
STEPS = 20
NOUNS = "cat dog house river stone window garden teacher letter winter market bridge painter forest".split()
VERBS = "sees finds likes leaves paints crosses remembers follows answers builds".split()
ADJECTIVES = "old green quiet small bright broken distant careful".split()
ANIMALS = ("cat", "dog", "teacher", "painter")

PRETRAINING = RunConfig(
    model=ModelConfig(num_layers=2, hidden_size=16, num_heads=2, max_positions=48),
    vocabulary=VocabularyConfig(size=120),
    data=DataConfig(source="text:stories.txt", held_out=0.1, chunk_megabytes=0.02),
    optimizer=OptimizerConfig(peak_learning_rate=2e-3, warmup=0.1),
    phases=(Phase(steps=STEPS - 8, length=32, batch_size=8), Phase(steps=8, length=48, batch_size=4)),
    evaluation=EvaluationConfig(every=10),
    checkpoints=CheckpointConfig(every=10),
    logging=LoggingConfig(every=1, tensorboard=False),
    preparation=PreparationConfig(processes=1),
)
"""Dropout as it is by default; two phases; segments of pairs."""

PRETRAININGS = {
    "pretraining": PRETRAINING,
    "no dropout": PRETRAINING.replace(model=PRETRAINING.model.replace(dropout=0.0, attention_dropout=0.0)),
    "lamb": PRETRAINING.replace(optimizer=PRETRAINING.optimizer.replace(name="lamb")),
    "accumulation": PRETRAINING.replace(execution=ExecutionConfig(accumulation=2)),
    "remat": PRETRAINING.replace(execution=ExecutionConfig(remat="full")),
    "bfloat16": PRETRAINING.replace(model=PRETRAINING.model.replace(compute_dtype="bfloat16")),
    "whole words, no pairs": PRETRAINING.replace(objective=ObjectiveConfig(units="word", pair="none")),
    "unigram, sinusoids": PRETRAINING.replace(
        model=PRETRAINING.model.replace(positions="sinusoidal"),
        vocabulary=VocabularyConfig(size=80, kind="unigram"),
    ),
    "next token": PRETRAINING.replace(
        model=PRETRAINING.model.replace(causal=True), objective=ObjectiveConfig(predict="next", pair="none")
    ),
}

TASKS = {
    "class": TaskConfig(name="class", kind="class", train="class.tsv", dev="class.tsv", texts=("sentence",)),
    "number": TaskConfig(name="number", kind="number", train="pairs.tsv", dev="pairs.tsv", texts=("a", "b")),
    "span": TaskConfig(
        name="span",
        kind="span",
        train="span.json",
        dev="span.json",
        texts=("question", "context"),
        label="answers",
        span=SpanConfig(question_length=16, stride=16, answer_length=4),
    ),
    "tags": TaskConfig(name="tags", kind="tags", train="tags.conll", dev="tags.conll", texts=("words",), label="tags"),
    "choice": TaskConfig(
        name="choice", kind="choice", train="choice.jsonl", dev="choice.jsonl", texts=("sentence",), choices=("a", "b")
    ),
    "marked": TaskConfig(
        name="marked",
        kind="marked",
        train="marked.jsonl",
        dev="marked.jsonl",
        texts=("a", "b"),
        marks=("a_begins", "a_ends", "b_begins", "b_ends"),
    ),
}
ROWS = 40


def tuned(task: TaskConfig, **others) -> FinetuneConfig:
    """20 steps of `task` from the pretrained run."""
    epochs = STEPS * 8 / ROWS
    settings = {"batch_size": 8, "epochs": epochs, "max_length": 48}
    return FinetuneConfig(
        task=task.replace(**settings),
        init="pretrained",
        optimizer=OptimizerConfig(peak_learning_rate=2e-3, warmup=0.1),
        logging=LoggingConfig(every=1, tensorboard=False),
        evaluations=0.25,
        **others,
    )


TUNINGS = {kind: tuned(task) for kind, task in TASKS.items()}
TUNINGS |= {"layers frozen": tuned(TASKS["class"], layers_frozen=1), "probe": tuned(TASKS["class"], probe=True)}


def sentence(rng: random.Random) -> str:
    return (
        f"The {rng.choice(ADJECTIVES)} {rng.choice(NOUNS)} {rng.choice(VERBS)} the {rng.choice(NOUNS)} "
        f"near {rng.choice(NOUNS)} number {rng.randint(0, 99)}."
    )


def write_inputs() -> None:
    """The text and the rows of every task, in the working directory."""
    rng = random.Random(0)
    paragraphs = (" ".join(sentence(rng) for _ in range(rng.randint(2, 5))) for _ in range(240))
    Path("stories.txt").write_text("".join(f"{text}\n" + "\n" * (n % 4 == 3) for n, text in enumerate(paragraphs)))
    texts = [sentence(rng) for _ in range(ROWS)]
    words = [text[:-1].split() for text in texts]
    animal = [said[2] in ANIMALS for said in words]
    write_lines(
        "class.tsv", "sentence\tlabel", *(f"{text}\t{'yes' if of else 'no'}" for text, of in zip(texts, animal))
    )
    pairs = [(texts[n], texts[(n + 7) % ROWS]) for n in range(ROWS)]
    shared = [len(set(a.split()) & set(b.split())) / 2 for a, b in pairs]
    write_lines("pairs.tsv", "a\tb\tlabel", *(f"{a}\t{b}\t{score}" for (a, b), score in zip(pairs, shared)))
    tags = [["B-ANI" if word in ANIMALS else "O" for word in said] for said in words]
    sentences = ("".join(f"{word} {tag}\n" for word, tag in zip(*row)) for row in zip(words, tags))
    write_lines("tags.conll", *sentences)
    questions = [
        {
            "id": str(n),
            "question": f"Who {said[3]} it?",
            "answers": [{"text": said[2], "answer_start": text.index(said[2])}],
        }
        for n, (text, said) in enumerate(zip(texts, words))
    ]
    contexts = [{"context": text, "qas": [question]} for text, question in zip(texts, questions)]
    Path("span.json").write_text(json.dumps({"version": "1.1", "data": [{"title": "", "paragraphs": contexts}]}))
    choices = ({"sentence": a, "a": a[:20], "b": b[:20], "label": n % 2} for n, (a, b) in enumerate(pairs))
    write_lines("choice.jsonl", *map(json.dumps, choices))
    write_lines("marked.jsonl", *(json.dumps(marked_row(a, b)) for a, b in pairs))


def marked_row(a: str, b: str) -> dict[str, str | int | bool]:
    """The second noun of each text is marked; whether it is the same is asked."""
    row: dict[str, str | int | bool] = {"a": a, "b": b, "label": a.split()[5] == b.split()[5]}
    for name, text in (("a", a), ("b", b)):
        noun = text.split()[5]
        row |= {f"{name}_begins": text.rindex(noun), f"{name}_ends": text.rindex(noun) + len(noun)}
    return row


def write_lines(name: str, *lines: str) -> None:
    Path(name).write_text("".join(f"{line}\n" for line in lines))


def losses(name: str, config: RunConfig | FinetuneConfig, run: RunDirectory) -> dict[str, list[float]]:
    """Trains `config` to its end: every number of metrics.jsonl that doesn't depend on the clock, by split and name."""
    if isinstance(config, RunConfig):
        pretrain(config, run)
    else:
        finetune(config, run)
    figures: dict[str, list[float]] = {}
    for line in read_metrics(run.metrics_file):
        for key, value in line.items():
            if isinstance(value, int | float) and not key.endswith(("_per_second", "mfu")):
                figures.setdefault(f"{name}: {line['split']} {key}", []).append(float(value))
    return figures


def outputs(task_runs: Path) -> dict[str, list[float]]:
    """What the pretrained run and those tuned to tasks, in `task_runs`, say of given texts: the numbers in order."""
    lines = Path("class.tsv").read_text().splitlines()[1:9]
    texts = [line.split("\t")[0] for line in lines]
    bert = bert_jax.load("pretrained")
    masked = [text.replace(text.split()[2], "[MASK]") for text in texts[:3]]
    made = {"fill-mask": [p for text in masked for guesses in bert.fill_mask(text, top=5) for _, p in guesses]}
    encoded = bert.encode(texts)
    made |= {"encode tokens": np.ravel(encoded.tokens).tolist(), "encode pooled": np.ravel(encoded.pooled).tolist()}
    with tempfile.TemporaryDirectory() as folder:
        texts_file, vectors = Path(folder, "texts.txt"), Path(folder, "vectors.npz")
        texts_file.write_text("".join(f"{text}\n" for text in texts))
        for pool in ("none", "mean", "max", "cls"):
            assert command(["features", "pretrained", str(texts_file), str(vectors), "--pool", pool]) == 0
            made[f"features {pool}"] = np.ravel(np.load(vectors)["vectors"]).astype(float).tolist()
            vectors.unlink()
        for kind, task in ((kind, task) for kind, task in TASKS.items() if (task_runs / kind).exists()):
            predicted = Path(folder, f"{kind}.jsonl")
            assert command(["predict", str(task_runs / kind), str(task.dev), str(predicted)]) == 0
            made[f"predict {kind}"] = list(numbers(list(map(json.loads, predicted.read_text().splitlines()))))
    return made


def numbers(value) -> Iterator[float]:
    """Every number in a JSON value; a text counts by its length."""
    if isinstance(value, dict | list):
        for part in value.values() if isinstance(value, dict) else value:
            yield from numbers(part)
    elif value is not None:
        yield float(len(value) if isinstance(value, str) else value)


def figures(folder: Path, only: Callable[[str], bool] = lambda name: True) -> Iterator[tuple[str, list[float]]]:
    """All figures as the code gives them now, with runs made in `folder`; of the trainings those that `only` takes."""
    for name, config in (PRETRAININGS | TUNINGS).items():
        if only(name):
            run = RunDirectory(folder / name)
            yield from losses(name, config, run).items()


def difference(expected: list[float], found: list[float]) -> float:
    """The largest difference, relative to the largest number; infinite where there aren't as many."""
    if len(expected) != len(found):
        return float("inf")
    most = max(map(abs, expected), default=0.0)
    return max((abs(a - b) for a, b in zip(expected, found)), default=0.0) / (most or 1.0)


def make() -> None:
    shutil.rmtree(TRAININGS, ignore_errors=True)
    TRAININGS.mkdir()
    with contextlib.chdir(TRAININGS):
        write_inputs()
        pretrain(PRETRAINING, RunDirectory(Path("pretrained")))
    make_figures()


def make_figures() -> None:
    """Writes both files of figures; text, rows and the pretrained run stay."""
    with contextlib.chdir(TRAININGS), tempfile.TemporaryDirectory() as folder:
        made = dict(figures(Path(folder)))
        write_figures("losses.json", made)
        write_figures("outputs.json", outputs(Path(folder)))


def write_figures(name: str, made: dict[str, list[float]]) -> None:
    lines = (
        f"{json.dumps(key)}: {json.dumps([float(f'{value:.9g}') for value in values])}" for key, values in made.items()
    )
    Path(name).write_text("{\n" + ",\n".join(lines) + "\n}\n")


def compare() -> None:
    expected = {name: json.loads((TRAININGS / name).read_text()) for name in ("losses.json", "outputs.json")}
    with contextlib.chdir(TRAININGS), tempfile.TemporaryDirectory() as folder:
        found = {"losses.json": dict(figures(Path(folder))), "outputs.json": outputs(Path(folder))}
    for name, all_expected in expected.items():
        for key, values in all_expected.items():
            print(f"{difference(values, found[name].get(key, [])):9.2e}  {key}")


if __name__ == "__main__":
    {"--compare": compare, "--figures": make_figures}.get("".join(sys.argv[1:]), make)()
