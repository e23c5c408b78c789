"""NomicBERT-base: 12 layers of width 768, 137 million parameters: BERT's blocks with rotary positions and a gated
feed-forward part (Nussbaum et al. 2024).

The authors' recipe, by the file of settings in their repository: five epochs of books and Wikipedia, batches of 4,096
rows of 128 tokens, 30% of the tokens masked, no question about pairs, no dropout.

    bert-jax pretrain configs/nomic_base.py --workdir runs/nomic_base --data.source "text:corpus/*.txt.gz"

Hardware and time: the run is 1.8e19 FLOPs of matrix products, on one H100 at 40% of its bfloat16 peak half a day, and
in proportion on other chips. That is arithmetic, not a measurement.

What to expect: measure it. The published model read rows of 2,048 tokens, for which --phases.0.length is the setting.

The number of steps is five epochs of 5 billion tokens; the authors give the epochs alone.
"""

from bert_jax.config.data import DataConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.training import OptimizerConfig, Phase

config = RunConfig(
    model=ModelConfig(
        model_type="nomic_bert",
        positions="rotary",
        rotary_base=1000.0,
        max_positions=2048,
        feedforward="gated",
        activation="silu",
        block_biases=False,
        dropout=0.0,
        attention_dropout=0.0,
    ),
    data=DataConfig(source="text:corpus/*.txt.gz", short_sequence_probability=0.0),
    objective=ObjectiveConfig(pair="none", masked_share=0.3),
    optimizer=OptimizerConfig(beta2=0.98, weight_decay=1e-5, peak_learning_rate=5e-4, warmup=0.06),
    phases=(Phase(steps=48_000, length=128, batch_size=4096),),
)
