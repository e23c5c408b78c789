"""A model from scratch for a language or a domain with little text: its size follows from the number of words.

    bert-jax pretrain configs/scratch_small.py --workdir runs/small --data.source "text:corpus/*.txt.gz" --minutes 20

In a text without spaces between words two characters count as a word. The vocabulary has at least three pieces for
each character of the text, so that Japanese or Chinese needs no setting.

The recipe is that of configs/cpu.py: ModernBERT's block, short sequences, no dropout.
"""

from bert_jax.config.data import DataConfig, VocabularyConfig
from bert_jax.config.fitted import ScratchConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.operation import CheckpointConfig, EvaluationConfig
from bert_jax.config.training import OptimizerConfig, Phase

config = ScratchConfig(
    model=ModelConfig(  # without the sizes: they follow from the words
        model_type="modernbert",
        positions="rotary",
        num_segments=0,
        norm="pre",
        feedforward="gated",
        biases=False,
        pooler="transform",
        dropout=0.0,
        attention_dropout=0.0,
        layer_norm_epsilon=1e-5,
        initializer_range=0.05,
    ),
    vocabulary=VocabularyConfig(lowercase=False),
    data=DataConfig(
        source="text:corpus/*.txt.gz", held_out=0.05, short_sequence_probability=0.0, whole_sentences=False
    ),
    objective=ObjectiveConfig(pair="none", masked_share=0.3, masked_share_end=0.15),
    optimizer=OptimizerConfig(
        peak_learning_rate=1e-3,
        warmup=0.02,
        schedule="warmup_stable_decay",
        decay_share=0.5,
        bias_correction=True,
        beta2=0.98,
        epsilon=1e-8,
        weight_decay=0.1,
    ),
    phases=(Phase(steps=10_000, length=64, batch_size=32),),
    evaluation=EvaluationConfig(every=1000, max_sequences=1024),
    checkpoints=CheckpointConfig(every=1000),
)
