"""BERT-Small: 4 layers of width 512, 29 million parameters.

The published recipe: 900,000 steps at length 128, then 100,000 at 512.

    bert-jax pretrain configs/small.py --workdir runs/small --data.source "text:corpus/*.txt.gz"

Hardware and time: the run is 3.5e18 FLOPs of matrix products, on one H100 at 40% of its bfloat16 peak 2.5 hours, and in
proportion on other chips. That is arithmetic, not a measurement.

What to expect: the checkpoint of this size that was published for English Wikipedia and books reaches 71.2
on GLUE (Turc et al. 2019).
"""

from bert_jax.config.data import DataConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.run import RunConfig

config = RunConfig(
    model=ModelConfig(num_layers=4, hidden_size=512, num_heads=8),
    data=DataConfig(source="text:corpus/*.txt.gz"),
)
