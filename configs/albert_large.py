"""ALBERT-large: 24 layers of width 1024 that share their parameters, 17.8 million of them.

Tables of width 128, masks of one to three words, the order of two segments in place of the next sentence (Lan et al.
2020). The published recipe: 125,000 steps of 4,096 sequences of 512 tokens with LAMB; no dropout, as in version 2.

    bert-jax pretrain configs/albert_large.py --workdir runs/albert_large --data.source "text:corpus/*.txt.gz"

Hardware and time: the run is 5.0e20 FLOPs of matrix products, on one H100 at 40% of its bfloat16 peak two weeks, and in
proportion on other chips. That is arithmetic, not a measurement. Fewer parameters save memory and not time.

What to expect: the paper reports a mean of 82.4 over SQuAD 1.1 and 2.0, MNLI, SST-2 and RACE (table 2).

A step of 4,096 sequences takes many devices, or --execution.accumulation N, which doesn't change the result.
"""

from bert_jax.config.data import DataConfig, VocabularyConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.training import OptimizerConfig, Phase

config = RunConfig(
    model=ModelConfig(
        model_type="albert",
        num_layers=24,
        hidden_size=1024,
        num_heads=16,
        embedding_size=128,
        shared_layers=True,
        dropout=0.0,
        attention_dropout=0.0,
    ),
    vocabulary=VocabularyConfig(kind="unigram", size=30_000),
    data=DataConfig(source="text:corpus/*.txt.gz"),
    objective=ObjectiveConfig(pair="sentence_order", units="ngram"),
    optimizer=OptimizerConfig(name="lamb", peak_learning_rate=1.76e-3, warmup=0.025),
    phases=(Phase(steps=125_000, length=512, batch_size=4096),),
)
