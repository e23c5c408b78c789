"""CoNLL-2003: who and what is named in English news?

    bert-jax finetune configs/finetune/conll2003.py --init RUN --workdir RUN2

Its rows are a public set that TFDS prepares once, for which it wants TensorFlow:

    pip install -c launch/constraints.txt -e ".[tensorflow]"
    tfds build conll2003 --file_format=array_record

With files of one's own:

    bert-jax finetune configs/finetune/conll2003.py --init RUN --workdir RUN2 \
      --task.train FILE --task.dev FILE --task.texts words --task.label tags --task.format conll

What to expect: BERT-base has an entity F1 of 0.964 on the dev rows. The casing matters: start from a cased model.
"""

from bert_jax.config.finetune import FinetuneConfig
from bert_jax.config.task import TaskConfig

config = FinetuneConfig(
    task=TaskConfig(
        name="conll2003",
        kind="tags",
        texts=("tokens",),
        label="ner",
        train="tfds:conll2003:train",
        dev="tfds:conll2003:dev",
        max_length=256,
    ),
)
