"""QQP: do two questions of Quora ask the same? (GLUE).

    bert-jax finetune configs/finetune/qqp.py --init RUN --workdir RUN2

Its rows are a public set that TFDS prepares once, for which it wants TensorFlow:

    pip install -c launch/constraints.txt -e ".[tensorflow]"
    tfds build glue/qqp --file_format=array_record

What to expect: BERT-large is right in 91.3% of the dev rows.
"""

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.task import TaskConfig

config = FinetuneConfig(
    task=TaskConfig(
        name="qqp",
        kind="class",
        texts=("question1", "question2"),
        labels=("not_duplicate", "duplicate"),
        train="tfds:glue/qqp:train",
        dev="tfds:glue/qqp:validation",
        metric="f1",
    ),
)
