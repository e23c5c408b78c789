"""PARus: which of two is the cause or the effect, in Russian? (Russian SuperGLUE).

    bert-jax finetune configs/finetune/parus.py --init RUN --workdir RUN2 --task.train FILE --task.dev FILE

What to expect: 400 rows: seeds differ much, and a small model guesses.
"""

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.task import TaskConfig

config = FinetuneConfig(
    task=TaskConfig(
        name="parus",
        kind="choice",
        texts=("{premise} {question}",),
        choices=("choice1", "choice2"),
        max_length=64,
        epochs=10.0,
        batch_size=16,
    ),
)
