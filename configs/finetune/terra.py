"""TERRa: does a Russian sentence follow from a text? (Russian SuperGLUE).

bert-jax finetune configs/finetune/terra.py --init RUN --workdir RUN2 --task.train FILE --task.dev FILE
"""

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.task import TaskConfig

config = FinetuneConfig(
    task=TaskConfig(
        name="terra",
        kind="class",
        texts=("premise", "hypothesis"),
        max_length=192,
    ),
)
