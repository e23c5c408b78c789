"""WNUT17: new names in English of the web.

    bert-jax finetune configs/finetune/wnut17.py --init RUN --workdir RUN2 --task.train FILE --task.dev FILE

What to expect: Names that no training row has: F1 stays low. Start from a cased model.
"""

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.task import TaskConfig

config = FinetuneConfig(
    task=TaskConfig(
        name="wnut17",
        kind="tags",
        texts=("words",),
        label="tags",
    ),
)
