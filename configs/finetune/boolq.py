"""BoolQ: does a text answer a question with yes? (SuperGLUE).

    bert-jax finetune configs/finetune/boolq.py --init RUN --workdir RUN2

Its rows are a public set that TFDS prepares once, for which it wants TensorFlow:

    pip install -c launch/constraints.txt -e ".[tensorflow]"
    tfds build super_glue/boolq --file_format=array_record
"""

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.task import TaskConfig

config = FinetuneConfig(
    task=TaskConfig(
        name="boolq",
        kind="class",
        texts=("question", "passage"),
        train="tfds:super_glue/boolq:train",
        dev="tfds:super_glue/boolq:validation",
        max_length=256,
    ),
)
