"""A published encoder goes on with your text, with its own vocabulary or a new one.

    bert-jax pretrain configs/adapt.py --workdir runs/adapted --init MODEL --data.source "text:*.txt.gz" --minutes 20
    bert-jax pretrain configs/adapt.py --workdir runs/exchanged --init MODEL --data.source ... --vocabulary.size 16384

MODEL is a run, a checkpoint, the folder of a transformers or sentence-transformers model, or a name of the hub. Its
settings are taken; docs/small_language.md says which model and which vocabulary.

All parameters learn from the first step on: a phase that trained only the head, only the tables over the
vocabulary and the head, or all but these tables gained nothing (docs/experiments.md).
"""

from bert_jax.config.data import DataConfig, VocabularyConfig
from bert_jax.config.fitted import AdaptConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.operation import EvaluationConfig
from bert_jax.config.training import OptimizerConfig, Phase

config = AdaptConfig(
    model=ModelConfig(dropout=0.0, attention_dropout=0.0),
    vocabulary=VocabularyConfig(lowercase=False),
    data=DataConfig(source="text:corpus/*.txt.gz", short_sequence_probability=0.0, whole_sentences=False),
    objective=ObjectiveConfig(pair="none"),
    optimizer=OptimizerConfig(peak_learning_rate=5e-4, warmup=0.1, bias_correction=True, beta2=0.98),
    phases=(Phase(steps=2_000, length=64, batch_size=32),),
    evaluation=EvaluationConfig(max_sequences=1024, watch=True),
)
