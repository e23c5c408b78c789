"""WNLI: does a sentence with its pronoun resolved follow? (GLUE).

    bert-jax finetune configs/finetune/wnli.py --init RUN --workdir RUN2

Its rows are a public set that TFDS prepares once, for which it wants TensorFlow:

    pip install -c launch/constraints.txt -e ".[tensorflow]"
    tfds build glue/wnli --file_format=array_record

What to expect: BERT has learned nothing from its 635 rows: the commoner class is right in 56.3% of the dev rows.
"""

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.task import TaskConfig

config = FinetuneConfig(
    task=TaskConfig(
        name="wnli",
        kind="class",
        texts=("sentence1", "sentence2"),
        train="tfds:glue/wnli:train",
        dev="tfds:glue/wnli:validation",
    ),
)
