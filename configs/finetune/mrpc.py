"""MRPC: do two sentences of the news say the same? (GLUE).

    bert-jax finetune configs/finetune/mrpc.py --init RUN --workdir RUN2

Its rows are a public set that TFDS prepares once, for which it wants TensorFlow:

    pip install -c launch/constraints.txt -e ".[tensorflow]"
    tfds build glue/mrpc --file_format=array_record

With files of one's own:

    bert-jax finetune configs/finetune/mrpc.py --init RUN --workdir RUN2 \
      --task.train FILE --task.dev FILE --task.texts '#1 String' '#2 String' \
      --task.label Quality --task.labels 0 1

What to expect: BERT-base is right in 84% to 88% of the dev rows, from seed to seed; BERT-large is reported at 88.0.
"""

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.task import TaskConfig

config = FinetuneConfig(
    task=TaskConfig(
        name="mrpc",
        kind="class",
        texts=("sentence1", "sentence2"),
        labels=("not_equivalent", "equivalent"),
        train="tfds:glue/mrpc:train",
        dev="tfds:glue/mrpc:validation",
        metric="f1",
    ),
)
