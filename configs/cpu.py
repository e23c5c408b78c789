"""The most that two CPU cores learn from 50 MB of text in about two hours: a narrow model, a short run's recipe.

    bert-jax pretrain configs/cpu.py --workdir runs/cpu --data.source "text:corpus/*.txt.gz"

Hardware and time: two CPU cores, 16,000 steps of about a third of a second. That is arithmetic from the step's time.
What to expect: a model to try the rest of the house on (fills, features, fine-tuning) where there is no accelerator.
Not run to its end yet.

On an encyclopedia's text a model twice as wide and as deep (BERT-Mini) learned no more from each of the first 45,000
sequences than one of two layers of this width, and took six times as long for each: a small one sees more of the text.
As in configs/demo.py no dropout, larger initial weights, Adam's bias correction, a shorter memory and more decay. All
positions are trained while the rate is high: a short phase of 512 tokens stands before the last one. (At the low rate
of a schedule's end positions past the first phase's length were hardly learned: with 64 tokens first, accuracy fell from
0.36 to 0.25 where sequences became longer, and stayed there.)
"""

from bert_jax.config.data import DataConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.operation import CheckpointConfig, EvaluationConfig, ExecutionConfig
from bert_jax.config.optimizer import OptimizerConfig
from bert_jax.config.phase import Phase
from bert_jax.config.run import RunConfig
from bert_jax.config.vocabulary import VocabularyConfig

config = RunConfig(
    model=ModelConfig(
        num_layers=4, hidden_size=128, num_heads=4, dropout=0.0, attention_dropout=0.0, initializer_range=0.06
    ),
    vocabulary=VocabularyConfig(size=8192),
    data=DataConfig(source="text:corpus/*.txt.gz", short_sequence_probability=0.0),
    optimizer=OptimizerConfig(
        peak_learning_rate=1.5e-3,
        warmup=0.03,
        schedule="warmup_stable_decay",
        decay_share=0.2,
        bias_correction=True,
        beta2=0.98,
        epsilon=1e-8,
        weight_decay=0.1,
    ),
    phases=(
        Phase(steps=11_500, length=128, batch_size=32),
        Phase(steps=1_500, length=512, batch_size=8),
        Phase(steps=3_000, length=128, batch_size=32),
    ),
    execution=ExecutionConfig(unroll=4),
    evaluation=EvaluationConfig(every=2000, max_sequences=1024),
    checkpoints=CheckpointConfig(every=1000),
)
