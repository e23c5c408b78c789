"""MPNet-base's model: RoBERTa-base with a learned number for each bucket of distances, 110 million parameters.

All blocks share one table of these numbers (Song et al. 2020). It learns masked words here, over byte-level BPE, not
with the authors' permuted prediction and WordPiece vocabulary.

    bert-jax pretrain configs/mpnet_base.py --workdir runs/mpnet_base --data.source "text:corpus/*.txt.gz"

Hardware and time: as configs/roberta_base.py, 1.2e21 FLOPs of matrix products, on one H100 at 40% of its bfloat16 peak
five weeks. That is arithmetic, not a measurement.

What to expect: its authors report 88.5 on MNLI and 95.4 on SST-2 for the model that they published.
"""

from bert_jax.config.data import DataConfig, VocabularyConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.training import OptimizerConfig, Phase

config = RunConfig(
    model=ModelConfig(
        model_type="mpnet",
        positions="bucketed",
        num_segments=0,
        first_position=2,
        activation="gelu_erf",
        layer_norm_epsilon=1e-5,
    ),
    vocabulary=VocabularyConfig(kind="byte_bpe", size=30_527, lowercase=False),
    data=DataConfig(source="text:corpus/*.txt.gz", short_sequence_probability=0.0),
    objective=ObjectiveConfig(pair="none"),
    optimizer=OptimizerConfig(beta2=0.98, peak_learning_rate=6e-4, warmup=0.048),
    phases=(Phase(steps=500_000, length=512, batch_size=8192),),
)
