"""RoBERTa-large: 24 layers of width 1024 over byte-level BPE, 355 million parameters.

Full sentences without a question about pairs, one segment type, large batches (Liu et al. 2019). The published recipe:
500,000 steps of 8,192 sequences of 512 tokens, on 160 GB of text.

    bert-jax pretrain configs/roberta_large.py --workdir runs/roberta_large --data.source "text:corpus/*.txt.gz"

Hardware and time: the run is 4.1e21 FLOPs of matrix products, on one H100 at 40% of its bfloat16 peak four months,
and in proportion on other chips. That is arithmetic, not a measurement. The paper had 1,024 V100.

What to expect: the paper reports 90.2 on MNLI, 96.4 on SST-2 and an F1 of 94.6 on SQuAD 1.1 (table 4).

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
        num_layers=24,
        hidden_size=1024,
        num_heads=16,
        num_segments=1,
        first_position=2,
        activation="gelu_erf",
        layer_norm_epsilon=1e-5,
    ),
    vocabulary=VocabularyConfig(kind="byte_bpe", size=50_265, lowercase=False),
    data=DataConfig(source="text:corpus/*.txt.gz", short_sequence_probability=0.0),
    objective=ObjectiveConfig(pair="none"),
    optimizer=OptimizerConfig(beta2=0.98, peak_learning_rate=4e-4, warmup=0.06),
    phases=(Phase(steps=500_000, length=512, batch_size=8192),),
)
