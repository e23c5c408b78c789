"""ModernBERT-base: 22 layers of width 768 over a context of 8,192 tokens, 149 million parameters.

Rotary positions, GeGLU, norms before the layers, no biases, attention to 64 tokens on each side in two of three layers,
30% of the tokens masked, packed rows, no question about pairs, no dropout (Warner et al. 2024). The published recipe:
1.7 trillion tokens in rows of 1,024, then 300 billion in rows of 8,192, for which the rotation of the global layers
becomes slower. There the rate of the last two phases is lower; here one warm-up-stable-decay schedule holds for all.

    bert-jax pretrain configs/modern_base.py --workdir runs/modern_base --data.source "text:corpus/*.txt.gz"

Hardware and time: the run is 1.8e21 FLOPs of matrix products, on one H100 at 40% of its bfloat16 peak seven weeks, and
in proportion on other chips. That is arithmetic, not a measurement.

What to expect: its authors report 88.5 on GLUE for the model that they published.

A step of 4,608 rows takes many devices, or --execution.accumulation N, which doesn't change the result.
"""

from bert_jax.config.data import DataConfig, VocabularyConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.training import OptimizerConfig, Phase

config = RunConfig(
    model=ModelConfig.modern(),
    vocabulary=VocabularyConfig(kind="byte_bpe", size=50_368, lowercase=False),
    data=DataConfig(source="text:corpus/*.txt.gz", packed=True),
    objective=ObjectiveConfig(pair="none", masked_share=0.3),
    optimizer=OptimizerConfig(
        peak_learning_rate=8e-4,
        schedule="warmup_stable_decay",
        warmup=0.002,
        decay_share=0.025,
        beta2=0.98,
        weight_decay=1e-5,
        bias_correction=True,
    ),
    phases=(
        Phase(steps=360_000, length=1024, batch_size=4608, rotary_base=10_000.0),
        Phase(steps=64_000, length=8192, batch_size=576),
    ),
)
