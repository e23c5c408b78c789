"""XNLI: MNLI in another language; here German, taught with translated rows.

    bert-jax finetune configs/finetune/xnli.py --init RUN --workdir RUN2

Its rows are a public set that TFDS prepares once, for which it wants TensorFlow:

    pip install -c launch/constraints.txt -e ".[tensorflow]"
    tfds build xtreme_xnli --file_format=array_record
    tfds build xnli --file_format=array_record

What to expect: German; another language: --task.texts premise.fr hypothesis.fr.
"""

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.task import TaskConfig

config = FinetuneConfig(
    task=TaskConfig(
        name="xnli",
        kind="class",
        texts=("premise.de", "hypothesis.de"),
        train="tfds:xtreme_xnli:train",
        dev="tfds:xnli:validation",
    ),
)
