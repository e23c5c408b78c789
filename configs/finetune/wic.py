"""WiC: is a word meant alike in two sentences? (SuperGLUE).

    bert-jax finetune configs/finetune/wic.py --init RUN --workdir RUN2

Its rows are a public set that TFDS prepares once, for which it wants TensorFlow:

    pip install -c launch/constraints.txt -e ".[tensorflow]"
    tfds build super_glue/wic --file_format=array_record

With files of one's own:

    bert-jax finetune configs/finetune/wic.py --init RUN --workdir RUN2 \
      --task.train FILE --task.dev FILE
"""

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.task import TaskConfig

config = FinetuneConfig(
    task=TaskConfig(
        name="wic",
        kind="marked",
        texts=("sentence1", "sentence2"),
        marks=("start1", "end1", "start2", "end2"),
        train="tfds:super_glue/wic:train",
        dev="tfds:super_glue/wic:validation",
    ),
)
