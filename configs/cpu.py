"""The most that two CPU cores learn from 50 MB of text in about two hours: BERT-Mini's shape, a recipe for a short run.

    bert-jax pretrain configs/cpu.py --workdir runs/cpu --data.source "text:corpus/*.txt.gz"

Hardware and time: two CPU cores, 6,300 steps of about a second. That is arithmetic from the step's time.
What to expect: a model to try the rest of the house on (fills, features, fine-tuning) where there is no accelerator.

As in configs/demo.py no dropout, a high rate with Adam's bias correction, a shorter memory and more decay, for a text
that is seen about twice. The last tenth of the steps has sequences of 512, as many tokens a step as before.
"""

from bert_jax.config.data import DataConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import CheckpointConfig, EvaluationConfig
from bert_jax.config.optimizer import OptimizerConfig
from bert_jax.config.phase import Phase
from bert_jax.config.run import RunConfig
from bert_jax.config.vocabulary import VocabularyConfig

config = RunConfig(
    model=ModelConfig.mini(dropout=0.0, attention_dropout=0.0, initializer_range=0.04),
    vocabulary=VocabularyConfig(size=16_384),
    data=DataConfig(source="text:corpus/*.txt.gz", short_sequence_probability=0.0),
    optimizer=OptimizerConfig(
        peak_learning_rate=1.5e-3, warmup=0.05, bias_correction=True, beta2=0.98, epsilon=1e-8, weight_decay=0.1
    ),
    phases=(Phase(steps=5700, length=128, batch_size=32), Phase(steps=600, length=512, batch_size=8)),
    evaluation=EvaluationConfig(every=500, max_sequences=1024),
    checkpoints=CheckpointConfig(every=500),
)
