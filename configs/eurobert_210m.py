"""EuroBERT-210m: 12 layers of width 768 with rotary positions, gated feed-forward parts and root-mean-square norms, 212
million parameters without the output's own table of words (Boizard et al. 2025).

The authors' recipe: 4.8 trillion tokens of 15 languages, code and mathematics in rows of 2,048 with half of the tokens
masked, then 200 billion in rows of 8,192 with a tenth masked, at a rate that falls to zero.

    bert-jax pretrain configs/eurobert_210m.py --workdir runs/eurobert --data.source "text:corpus/*.txt.gz"

Hardware and time: the run is 5.6e21 FLOPs of matrix products, on one H100 at 40% of its bfloat16 peak half a year, and
in proportion on other chips. That is arithmetic, not a measurement.

What to expect: measure it; the authors report their figures by task and language.

The first part of the recipe is here, on packed rows. The settings of the optimizer are the defaults of the authors'
library; the size of a batch is ours. transformers' EuroBERT has an output without bias and with a table of its own.
"""

from bert_jax.config.data import DataConfig, VocabularyConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.training import OptimizerConfig, Phase

config = RunConfig(
    model=ModelConfig(
        model_type="eurobert",
        max_positions=2048,
        positions="rotary",
        num_segments=0,
        norm="pre",
        norm_kind="rms",
        embedding_norm=False,
        layer_norm_epsilon=1e-5,
        feedforward="gated",
        activation="silu",
        biases=False,
        head="product",
        tied_words=False,
        pooler="gelu",
        dropout=0.0,
        attention_dropout=0.0,
    ),
    vocabulary=VocabularyConfig(kind="byte_bpe", size=128_000, lowercase=False),
    data=DataConfig(source="text:corpus/*.txt.gz", packed=True, short_sequence_probability=0.0),
    objective=ObjectiveConfig(pair="none", masked_share=0.5, mask_probability=1.0, random_probability=0.0),
    optimizer=OptimizerConfig(
        beta2=0.95,
        epsilon=1e-5,
        weight_decay=0.1,
        peak_learning_rate=1e-4,
        warmup=0.01,
        schedule="warmup_stable_decay",
    ),
    phases=(Phase(steps=1_144_000, length=2048, batch_size=2048),),
)
