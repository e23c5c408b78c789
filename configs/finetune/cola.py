"""CoLA: is an English sentence acceptable? (GLUE).

    bert-jax finetune configs/finetune/cola.py --init RUN --workdir RUN2

Its rows are a public set that TFDS prepares once, for which it wants TensorFlow:

    pip install -c launch/constraints.txt -e ".[tensorflow]"
    tfds build glue/cola --file_format=array_record

With files of one's own:

    bert-jax finetune configs/finetune/cola.py --init RUN --workdir RUN2 \
      --task.train FILE --task.dev FILE --task.columns source label mark sentence

What to expect: BERT-large has a Matthews correlation of 0.606 on the dev rows.
"""

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.task import TaskConfig

config = FinetuneConfig(
    task=TaskConfig(
        name="cola",
        kind="class",
        texts=("sentence",),
        train="tfds:glue/cola:train",
        dev="tfds:glue/cola:validation",
        metric="matthews",
    ),
)
