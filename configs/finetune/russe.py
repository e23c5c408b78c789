"""RUSSE: is a Russian word meant alike in two sentences? (Russian SuperGLUE).

bert-jax finetune configs/finetune/russe.py --init RUN --workdir RUN2 --task.train FILE --task.dev FILE
"""

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.task import TaskConfig

config = FinetuneConfig(
    task=TaskConfig(
        name="russe",
        kind="marked",
        texts=("sentence1", "sentence2"),
        marks=("start1", "end1", "start2", "end2"),
        max_length=192,
    ),
)
