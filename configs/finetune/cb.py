"""CB: does what is embedded in a sentence follow from the text? (SuperGLUE).

    bert-jax finetune configs/finetune/cb.py --init RUN --workdir RUN2

Its rows are a public set that TFDS prepares once, for which it wants TensorFlow:

    pip install -c launch/constraints.txt -e ".[tensorflow]"
    tfds build super_glue/cb --file_format=array_record

What to expect: 250 rows: seeds differ much.
"""

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.task import TaskConfig

config = FinetuneConfig(
    task=TaskConfig(
        name="cb",
        kind="class",
        texts=("premise", "hypothesis"),
        train="tfds:super_glue/cb:train",
        dev="tfds:super_glue/cb:validation",
        max_length=256,
        epochs=10.0,
        metric="macro_f1",
    ),
)
