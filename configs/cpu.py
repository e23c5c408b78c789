"""The most that two CPU cores learn from 50 MB of text in an hour or two: BERT-Tiny's width, a short run's recipe.

    bert-jax pretrain configs/cpu.py --workdir runs/cpu --data.source "text:corpus/*.txt.gz"

Hardware and time: two CPU cores, 18,400 steps of a fifth of a second. That is arithmetic from the step's time.
What to expect: a model to try the rest of the house on (fills, features, fine-tuning) where there is no accelerator.

On an encyclopedia's text four times as wide a model learned no more a sequence than this one in the first fifty
thousand, and took six times as long for each: the small one sees more of the text. As in configs/demo.py no dropout,
larger initial weights, Adam's bias correction, a shorter memory and more decay. Short sequences first; then as many
tokens a step in sequences of 128 and of 512, so that all positions are trained.
"""

from bert_jax.config.data import DataConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import CheckpointConfig, EvaluationConfig, ExecutionConfig
from bert_jax.config.optimizer import OptimizerConfig
from bert_jax.config.phase import Phase
from bert_jax.config.run import RunConfig
from bert_jax.config.vocabulary import VocabularyConfig

config = RunConfig(
    model=ModelConfig.tiny(num_heads=4, dropout=0.0, attention_dropout=0.0, initializer_range=0.06),
    vocabulary=VocabularyConfig(size=8192),
    data=DataConfig(source="text:corpus/*.txt.gz", short_sequence_probability=0.0),
    optimizer=OptimizerConfig(
        peak_learning_rate=2e-3, warmup=0.05, bias_correction=True, beta2=0.98, epsilon=1e-8, weight_decay=0.1
    ),
    phases=(
        Phase(steps=16_000, length=64, batch_size=64),
        Phase(steps=2_000, length=128, batch_size=32),
        Phase(steps=400, length=512, batch_size=8),
    ),
    execution=ExecutionConfig(unroll=2),
    evaluation=EvaluationConfig(every=2000, max_sequences=1024),
    checkpoints=CheckpointConfig(every=1000),
)
