"""SQuAD 1.1: the answer to a question in a text; any set in its JSON.

    bert-jax finetune configs/finetune/squad.py --init RUN --workdir RUN2

Its rows are a public set that TFDS prepares once, for which it wants TensorFlow:

    pip install -c launch/constraints.txt -e ".[tensorflow]"
    tfds build squad/v1.1 --file_format=array_record

With files of one's own:

    bert-jax finetune configs/finetune/squad.py --init RUN --workdir RUN2 \
      --task.train FILE --task.dev FILE

Chinese and Japanese are compared by character: --task.span.by-character.

What to expect: BERT-base has F1 0.884 and exact match 0.812 on the dev questions, BERT-large 0.909 and 0.844.
"""

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.optimizer import OptimizerConfig
from bert_jax.config.task import TaskConfig

config = FinetuneConfig(
    task=TaskConfig(
        name="squad",
        kind="span",
        texts=("question", "context"),
        label="answers",
        train="tfds:squad/v1.1:train",
        dev="tfds:squad/v1.1:validation",
        max_length=384,
        epochs=2.0,
        batch_size=12,
    ),
    optimizer=OptimizerConfig(peak_learning_rate=3e-5, warmup=0.1),
)
