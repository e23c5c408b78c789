"""RoBERTa-base: 12 layers of width 768 over byte-level BPE, 125 million parameters.

Full sentences without a question about pairs, one segment type, large batches (Liu et al. 2019). The published recipe:
500,000 steps of 8,192 sequences of 512 tokens, on 160 GB of text.

    bert-jax pretrain configs/roberta_base.py --workdir runs/roberta_base --data.source "text:corpus/*.txt.gz"

Hardware and time: the run is 1.2e21 FLOPs of matrix products, on one H100 at 40% of its bfloat16 peak five weeks, and
in proportion on other chips. That is arithmetic, not a measurement. The paper had 1,024 V100.

What to expect: its authors report 87.6 on MNLI and 94.8 on SST-2 for the model that they published.

A step of 8,192 sequences takes many devices, or --execution.accumulation N, which doesn't change the result.
"""

from bert_jax.config.data import DataConfig, VocabularyConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.training import OptimizerConfig, Phase

config = RunConfig(
    model=ModelConfig(
        model_type="roberta",
        num_segments=1,
        first_position=2,
        activation="gelu_erf",
        layer_norm_epsilon=1e-5,
    ),
    vocabulary=VocabularyConfig(kind="byte_bpe", size=50_265, lowercase=False),
    data=DataConfig(source="text:corpus/*.txt.gz", short_sequence_probability=0.0),
    objective=ObjectiveConfig(pair="none"),
    optimizer=OptimizerConfig(beta2=0.98, peak_learning_rate=6e-4, warmup=0.048),
    phases=(Phase(steps=500_000, length=512, batch_size=8192),),
)
