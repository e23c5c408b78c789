"""Configs of fine-tuning tasks: their kind, columns, public set and length, and what to expect of them.

    bert-jax finetune sst2 --init RUN --workdir RUN2

`RECIPES` holds each by its name, with its description.
"""

from typing import Any

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.task import SpanConfig, TaskConfig
from bert_jax.config.training import OptimizerConfig


def _recipe(
    name: str,
    about: str,
    texts: str | tuple[str, ...],
    kind: str = "class",
    rows: tuple[str, str] | None = None,
    own: str = "",
    expect: str = "",
    optimizer: OptimizerConfig | None = None,
    **settings: Any,
) -> tuple[str, FinetuneConfig]:
    """The description and the config of one task.

    `rows` names the TFDS splits of training and dev rows. `own` are the flags that the set's own files need besides
    their paths. `settings` are further fields of TaskConfig.
    """
    command = f"    bert-jax finetune {name} --init RUN --workdir RUN2"
    files = "--task.train FILE --task.dev FILE"
    if rows:
        settings |= {"train": f"tfds:{rows[0]}", "dev": f"tfds:{rows[1]}"}
        sets = dict.fromkeys(split.partition(":")[0] for split in rows)
        builds = "\n".join(f"    tfds build {each} --file_format=array_record" for each in sets)
        text = (
            f"{about}\n\n{command}\n\nThe rows are a public dataset. TFDS prepares it once, which needs TensorFlow:\n\n"
            f'    pip install -c launch/constraints.txt -e ".[tensorflow]"\n{builds}\n\n'
            f"For rows in files, add:\n\n    {files}{own}\n"
        )
    else:
        text = f"{about}\n\n{command} {files}\n"
    if expect:
        text += f"\n{expect}\n"
    name = "" if name in _OWN else name
    task = TaskConfig(name=name, kind=kind, texts=(texts,) if isinstance(texts, str) else texts, **settings)
    config = FinetuneConfig(task=task)
    return text, config.replace(optimizer=optimizer) if optimizer else config


_OPTIMIZER = FinetuneConfig.model_fields["optimizer"].default
_MARKS = ("start1", "end1", "start2", "end2")
_SENTENCES = ("sentence1", "sentence2")
_ENTAILMENT = ("premise", "hypothesis")

_ANSWERS: dict[str, Any] = dict(
    kind="span",
    texts=("question", "context"),
    label="answers",
    max_length=384,
    epochs=2.0,
    batch_size=12,
    optimizer=_OPTIMIZER.replace(peak_learning_rate=3e-5),
)
_OWN: dict[str, dict[str, Any]] = {
    "classes": dict(
        about="A class for each text or pair, from your own rows.",
        texts="text",
        expect="The rows have the columns text and label. For others: --task.texts review --task.label stars, and for\n"
        "pairs --task.texts first second.",
    ),
    "labels": dict(
        about="All labels that apply to a text or pair, none or several, from your own rows.",
        kind="labels",
        texts="text",
        label="labels",
        expect='The rows have the columns text and labels: "sports,politics" or a list. For others: --task.texts and\n'
        "--task.label; for columns of 0 and 1 their names: --task.labels sports politics.",
    ),
    "number": dict(
        about="A number for each text or pair, such as a rating, from your own rows.",
        kind="number",
        texts="text",
        label="number",
        expect="The rows have the columns text and number. For others: --task.texts review --task.label stars.",
    ),
    "tags": dict(
        about="A tag for each word, or the entities of a text, from your own rows.",
        kind="tags",
        texts="words",
        label="tags",
        max_length=256,
        expect="The rows are CoNLL columns with the word first and the tag last (.conll), or JSON lines with lists\n"
        "named words and tags. For entities by character: --task.texts text --task.label spans.",
    ),
    "answers": dict(
        about="The answer to a question in a text, from your own rows in SQuAD's JSON.",
        **_ANSWERS,
        expect="If questions may have no answer: --task.span.null-answers.",
    ),
    "choices": dict(
        about="The best of several choices, from your own rows.",
        kind="choice",
        texts="text",
        choices=("choice1", "choice2"),
        batch_size=16,
        expect="The rows have the columns text, choice1, choice2 and label: 0 or 1. For others: --task.texts and\n"
        "--task.choices a b c d.",
    ),
}
"""The configs for rows of one's own, whose tasks are called like the file of the rows."""

_TABLE: dict[str, dict[str, Any]] = {
    **_OWN,
    # GLUE
    "cola": dict(
        about="CoLA: is an English sentence acceptable? (GLUE).",
        texts="sentence",
        rows=("glue/cola:train", "glue/cola:validation"),
        metric="matthews",
        own=" --task.columns source label mark sentence",
        expect="What to expect: BERT-large has a Matthews correlation of 0.606 on the dev rows.",
    ),
    "sst2": dict(
        about="SST-2: is a sentence of a film review positive? (GLUE).",
        texts="sentence",
        rows=("glue/sst2:train", "glue/sst2:validation"),
        max_length=64,
        expect="What to expect: BERT-large is right in 93.2% of the dev rows.",
    ),
    "mrpc": dict(
        about="MRPC: do two sentences of the news say the same? (GLUE).",
        texts=_SENTENCES,
        labels=("not_equivalent", "equivalent"),
        rows=("glue/mrpc:train", "glue/mrpc:validation"),
        metric="f1",
        own=" --task.texts '#1 String' '#2 String' --task.label Quality --task.labels 0 1",
        expect="What to expect: BERT-base is right in 84% to 88% of the dev rows, by seed; BERT-large reports 88.0.",
    ),
    "qqp": dict(
        about="QQP: do two questions of Quora ask the same? (GLUE).",
        texts=("question1", "question2"),
        labels=("not_duplicate", "duplicate"),
        rows=("glue/qqp:train", "glue/qqp:validation"),
        metric="f1",
        expect="What to expect: BERT-large is right in 91.3% of the dev rows.",
    ),
    "stsb": dict(
        about="STS-B: how similar are two sentences, from 0 to 5? (GLUE).",
        kind="number",
        texts=_SENTENCES,
        rows=("glue/stsb:train", "glue/stsb:validation"),
        own=" --task.format tsv --task.label score\n"
        "    --task.columns genre file year id score sentence1 sentence2 license1 license2",
        expect="What to expect: BERT-large has correlations of 0.900 on the dev rows.",
    ),
    "mnli": dict(
        about="MNLI: does a sentence follow from another, contradict it, or neither? (GLUE).",
        texts=_ENTAILMENT,
        rows=("glue/mnli:train", "glue/mnli:validation_matched"),
        expect="What to expect: BERT-large is right in 86.6% of the matched dev rows.",
    ),
    "qnli": dict(
        about="QNLI: does a sentence answer a question? (GLUE).",
        texts=("question", "sentence"),
        rows=("glue/qnli:train", "glue/qnli:validation"),
        expect="What to expect: BERT-large is right in 92.3% of the dev rows.",
    ),
    "rte": dict(
        about="RTE: does a sentence follow from a text? (GLUE).",
        texts=_SENTENCES,
        rows=("glue/rte:train", "glue/rte:validation"),
        expect="SuperGLUE's set of this name has other columns:\n\n    --task.texts premise hypothesis "
        "--task.train tfds:super_glue/rte:train --task.dev tfds:super_glue/rte:validation\n\n"
        "What to expect: BERT-large is right in 70.4% of the dev rows.",
    ),
    "wnli": dict(
        about="WNLI: does a sentence with its pronoun resolved follow? (GLUE).",
        texts=_SENTENCES,
        rows=("glue/wnli:train", "glue/wnli:validation"),
        expect="What to expect: BERT learns nothing from the 635 rows; always the more frequent class scores 56.3%.",
    ),
    # SuperGLUE
    "boolq": dict(
        about="BoolQ: does a text answer a question with yes? (SuperGLUE).",
        texts=("question", "passage"),
        rows=("super_glue/boolq:train", "super_glue/boolq:validation"),
        max_length=256,
    ),
    "cb": dict(
        about="CB: does the clause embedded in a sentence follow from the text? (SuperGLUE).",
        texts=_ENTAILMENT,
        rows=("super_glue/cb:train", "super_glue/cb:validation"),
        max_length=256,
        epochs=10.0,
        metric="macro_f1",
        expect="What to expect: there are 250 rows, so seeds differ much.",
    ),
    "copa": dict(
        about="COPA: which of two is the cause or the effect? (SuperGLUE).",
        kind="choice",
        texts="{premise} {question}",
        choices=("choice1", "choice2"),
        rows=("super_glue/copa:train", "super_glue/copa:validation"),
        max_length=64,
        epochs=10.0,
        batch_size=16,
        expect="What to expect: there are 400 rows, so seeds differ much, and a small model guesses.",
    ),
    "wic": dict(
        about="WiC: does a word have the same meaning in two sentences? (SuperGLUE).",
        kind="marked",
        texts=_SENTENCES,
        marks=_MARKS,
        rows=("super_glue/wic:train", "super_glue/wic:validation"),
    ),
    # Russian SuperGLUE
    "danetqa": dict(
        about="DaNetQA: does a Russian text answer a question with yes? (Russian SuperGLUE).",
        texts=("question", "passage"),
        max_length=256,
    ),
    "parus": dict(
        about="PARus: which of two is the cause or the effect, in Russian? (Russian SuperGLUE).",
        kind="choice",
        texts="{premise} {question}",
        choices=("choice1", "choice2"),
        max_length=64,
        epochs=10.0,
        batch_size=16,
        expect="What to expect: there are 400 rows, so seeds differ much, and a small model guesses.",
    ),
    "russe": dict(
        about="RUSSE: does a Russian word have the same meaning in two sentences? (Russian SuperGLUE).",
        kind="marked",
        texts=_SENTENCES,
        marks=_MARKS,
        max_length=192,
    ),
    "terra": dict(
        about="TERRa: does a Russian sentence follow from a text? (Russian SuperGLUE).",
        texts=_ENTAILMENT,
        max_length=192,
    ),
    # Other sentence tasks
    "xnli": dict(
        about="XNLI: MNLI in another language; here German, trained on translated rows.",
        texts=("premise.de", "hypothesis.de"),
        rows=("xtreme_xnli:train", "xnli:validation"),
        expect="For another language: --task.texts premise.fr hypothesis.fr.",
    ),
    "chnsenticorp": dict(
        about="ChnSentiCorp: is a Chinese review positive?",
        texts="text_a",
        max_length=256,
        expect="What to expect: BERT-base-Chinese is right in 94% to 95% of the dev rows.",
    ),
    "swag": dict(
        about="SWAG: which of four ways does a scene go on?",
        kind="choice",
        texts="sent1",
        choices=("{sent2} {ending0}", "{sent2} {ending1}", "{sent2} {ending2}", "{sent2} {ending3}"),
        batch_size=16,
        expect="What to expect: BERT-base is right in 81.6% of the dev rows.",
    ),
    # Tags of words
    "conll2003": dict(
        about="CoNLL-2003: who and what is named in English news?",
        kind="tags",
        texts="tokens",
        label="ner",
        rows=("conll2003:train", "conll2003:dev"),
        max_length=256,
        own=" --task.texts words --task.label tags --task.format conll",
        expect="What to expect: BERT-base has an entity F1 of 0.964 on the dev rows. Start from a cased model.",
    ),
    "resume_ner": dict(
        about="Names, jobs and the like in Chinese resumes, tagged by character (BMES).",
        kind="tags",
        texts="words",
        label="tags",
        max_length=192,
    ),
    "ud": dict(
        about="Parts of speech of a Universal Dependencies treebank.",
        kind="tags",
        texts="words",
        label="upos",
        max_length=192,
        expect="For other tags: --task.label xpos.",
    ),
    "wnut17": dict(
        about="WNUT17: new names in English texts of the web.",
        kind="tags",
        texts="words",
        label="tags",
        expect="What to expect: no dev name is in the training rows, so F1 stays low. Start from a cased model.",
    ),
    # Vectors of texts
    "vectors": dict(
        about="Vectors of texts to search and compare with, from rows of texts that match or from any corpus.",
        kind="vectors",
        texts=("query", "positive"),
        label="score",
        max_length=128,
        epochs=1.0,
        batch_size=64,
        optimizer=_OPTIMIZER.replace(peak_learning_rate=2e-5),
        expect="Rows have query, positive and possibly negatives (a list); or a, b and score. From a corpus alone:\n\n"
        "    --task.source text:FILES, in place of --task.train\n\n"
        "Larger batches have more texts to tell apart and teach more; --execution.accumulation 8 computes the same in\n"
        "less memory.",
    ),
    # Answers in a text
    "squad": dict(
        about="SQuAD 1.1: the answer to a question in a text; any set in its JSON.",
        **_ANSWERS,
        rows=("squad/v1.1:train", "squad/v1.1:validation"),
        expect="Compare Chinese and Japanese answers by character: --task.span.by-character.\n\n"
        "What to expect: BERT-base has F1 0.884 and exact match 0.812 on the dev rows, BERT-large 0.909 and 0.844.",
    ),
    "squad2": dict(
        about="SQuAD 2.0: as 1.1, but a text may have no answer.",
        **_ANSWERS | dict(batch_size=48, optimizer=_OPTIMIZER.replace(peak_learning_rate=5e-5)),
        rows=("squad/v2.0:train", "squad/v2.0:validation"),
        span=SpanConfig(null_answers=True),
        expect="What to expect: BERT-large has F1 0.819 and exact match 0.787 on the dev questions.",
    ),
}
RECIPES = {name: _recipe(name, **row) for name, row in _TABLE.items()}
