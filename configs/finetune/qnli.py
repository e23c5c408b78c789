"""QNLI: does a sentence answer a question? (GLUE).

    bert-jax finetune configs/finetune/qnli.py --init RUN --workdir RUN2

Its rows are a public set that TFDS prepares once, for which it wants TensorFlow:

    pip install -c launch/constraints.txt -e ".[tensorflow]"
    tfds build glue/qnli --file_format=array_record

What to expect: BERT-large is right in 92.3% of the dev rows.
"""

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.task import TaskConfig

config = FinetuneConfig(
    task=TaskConfig(
        name="qnli",
        kind="class",
        texts=("question", "sentence"),
        train="tfds:glue/qnli:train",
        dev="tfds:glue/qnli:validation",
    ),
)
