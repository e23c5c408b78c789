"""MNLI: does a sentence follow from another, contradict it, or neither? (GLUE).

    bert-jax finetune configs/finetune/mnli.py --init RUN --workdir RUN2

Its rows are a public set that TFDS prepares once, for which it wants TensorFlow:

    pip install -c launch/constraints.txt -e ".[tensorflow]"
    tfds build glue/mnli --file_format=array_record

What to expect: BERT-large is right in 86.6% of the matched dev rows.
"""

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.task import TaskConfig

config = FinetuneConfig(
    task=TaskConfig(
        name="mnli",
        kind="class",
        texts=("premise", "hypothesis"),
        train="tfds:glue/mnli:train",
        dev="tfds:glue/mnli:validation_matched",
    ),
)
