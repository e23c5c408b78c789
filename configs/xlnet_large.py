"""XLNet-large: 24 layers of width 1024 with relative positions, 360 million parameters.

A sixth of the tokens is predicted one after the other in random order, each by a query stream that doesn't see it (Yang
et al. 2019). Targets are spans of one to five words. There is no memory of earlier rows (Transformer-XL), because here
a row is a function of its ordinal alone.

    bert-jax pretrain configs/xlnet_large.py --workdir runs/xlnet_large --data.source "text:corpus/*.txt.gz"

The published recipe: 500,000 steps of 8,192 sequences of 512 tokens, on 126 GB of text.

Hardware and time: the run is 5.0e21 FLOPs of matrix products, on one H100 at 40% of its bfloat16 peak five months, and
in proportion on other chips. That is arithmetic, not a measurement: relative attention has no kernel here. The paper
had 512 TPU v3 chips for five and a half days.

What to expect: the paper reports 90.8 on MNLI and 97.0 on SST-2 (table 5, dev sets).

A step of 8,192 sequences takes many devices, or --execution.accumulation N, which doesn't change the result.
"""

from bert_jax.config.data import DataConfig, VocabularyConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.training import OptimizerConfig, Phase

config = RunConfig(
    model=ModelConfig.large(model_type="xlnet", positions="relative", class_token="last", num_segments=0),
    vocabulary=VocabularyConfig(kind="unigram", size=32_000, lowercase=False),
    data=DataConfig(source="text:corpus/*.txt.gz", short_sequence_probability=0.0),
    objective=ObjectiveConfig(
        predict="permuted", pair="none", units="context", masked_share=1 / 6, evaluated_share=1 / 6
    ),
    optimizer=OptimizerConfig(peak_learning_rate=4e-4, warmup=0.08),
    phases=(Phase(steps=500_000, length=512, batch_size=8192),),
)
