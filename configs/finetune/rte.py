"""RTE: does a sentence follow from a text? (GLUE).

    bert-jax finetune configs/finetune/rte.py --init RUN --workdir RUN2

Its rows are a public set that TFDS prepares once, for which it wants TensorFlow:

    pip install -c launch/constraints.txt -e ".[tensorflow]"
    tfds build glue/rte --file_format=array_record

With files of one's own:

    bert-jax finetune configs/finetune/rte.py --init RUN --workdir RUN2 \
      --task.train FILE --task.dev FILE

SuperGLUE's set of this name, whose columns are called otherwise:

    bert-jax finetune configs/finetune/rte.py --init RUN --workdir RUN2 --task.texts premise hypothesis \
      --task.train tfds:super_glue/rte:train --task.dev tfds:super_glue/rte:validation

What to expect: BERT-large is right in 70.4% of the dev rows.
"""

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.task import TaskConfig

config = FinetuneConfig(
    task=TaskConfig(
        name="rte",
        kind="class",
        texts=("sentence1", "sentence2"),
        train="tfds:glue/rte:train",
        dev="tfds:glue/rte:validation",
    ),
)
