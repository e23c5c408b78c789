"""SST-2: is a sentence of a film review positive? (GLUE).

    bert-jax finetune configs/finetune/sst2.py --init RUN --workdir RUN2

Its rows are a public set that TFDS prepares once, for which it wants TensorFlow:

    pip install -c launch/constraints.txt -e ".[tensorflow]"
    tfds build glue/sst2 --file_format=array_record

With files of one's own:

    bert-jax finetune configs/finetune/sst2.py --init RUN --workdir RUN2 \
      --task.train FILE --task.dev FILE

What to expect: BERT-large is right in 93.2% of the dev rows.
"""

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.task import TaskConfig

config = FinetuneConfig(
    task=TaskConfig(
        name="sst2",
        kind="class",
        texts=("sentence",),
        train="tfds:glue/sst2:train",
        dev="tfds:glue/sst2:validation",
        max_length=64,
    ),
)
