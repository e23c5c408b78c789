"""DistilBERT-base: 6 layers of width 768, 67 million parameters: half of BERT-base's layers, no segments, no pooler.

It learns masked words and, beside them, the predictions of a teacher (Sanh et al. 2019): give --teacher MODEL, such as
a run of `base`. Without a teacher it is a smaller BERT without pairs. The published recipe: three epochs of Wikipedia
and books in batches of 4,000 sequences; the teacher's loss at temperature 2 has a weight of 5, that of masked words 2,
and a third loss draws the hidden states together with a weight of 1, which isn't there here. The number of steps is
three epochs of 4.7 billion tokens.

    bert-jax pretrain configs/distilbert_base.py --workdir runs/distilbert --teacher runs/base \\
      --data.source "text:corpus/*.txt.gz"

Hardware and time: with a teacher of BERT-base's size the run is 6.5e18 FLOPs of matrix products, on one H100 at 40% of
its bfloat16 peak five hours, and in proportion on other chips. That is arithmetic, not a measurement.

What to expect: the paper reports 97% of BERT-base's mean over the tasks of GLUE (table 1: 77.0 and 79.5).

The authors begin with every second layer of the teacher: add --init runs/base --init-layers 0 2 4 6 8 10, and
--model.activation gelu_tanh, which is that of `base`. The vector of BERT's first segment is added to those of the
positions, so that single texts have the same vectors; the authors leave it out.
"""

from bert_jax.config.data import DataConfig
from bert_jax.config.distillation import DistillationConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.training import OptimizerConfig, Phase

config = RunConfig(
    model=ModelConfig(
        model_type="distilbert",
        num_layers=6,
        num_segments=0,
        activation="gelu_erf",
        pooler="relu",
    ),
    data=DataConfig(source="text:corpus/*.txt.gz", short_sequence_probability=0.0),
    objective=ObjectiveConfig(pair="none"),
    distillation=DistillationConfig(weight=5 / 7, temperature=2.0),
    optimizer=OptimizerConfig(beta2=0.98, peak_learning_rate=5e-4, warmup=0.05),
    phases=(Phase(steps=7_000, length=512, batch_size=4000),),
)
