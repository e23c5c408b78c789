"""COPA: which of two is the cause or the effect? (SuperGLUE).

    bert-jax finetune configs/finetune/copa.py --init RUN --workdir RUN2

Its rows are a public set that TFDS prepares once, for which it wants TensorFlow:

    pip install -c launch/constraints.txt -e ".[tensorflow]"
    tfds build super_glue/copa --file_format=array_record

With files of one's own:

    bert-jax finetune configs/finetune/copa.py --init RUN --workdir RUN2 \
      --task.train FILE --task.dev FILE

What to expect: 400 rows: seeds differ much, and a small model guesses.
"""

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.task import TaskConfig

config = FinetuneConfig(
    task=TaskConfig(
        name="copa",
        kind="choice",
        texts=("{premise} {question}",),
        choices=("choice1", "choice2"),
        train="tfds:super_glue/copa:train",
        dev="tfds:super_glue/copa:validation",
        max_length=64,
        epochs=10.0,
        batch_size=16,
    ),
)
