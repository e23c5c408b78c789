"""BERT-Medium: 8 layers of width 512, 42 million parameters.

The published recipe: 900,000 steps at length 128, then 100,000 at 512.

    bert-jax pretrain configs/medium.py --workdir runs/medium --data.source "text:corpus/*.txt.gz"

Hardware and time: the run is 7.0e18 FLOPs of matrix products, on one H100 at 40% of its bfloat16 peak 5 hours, and in
proportion on other chips. That is arithmetic, not a measurement.

What to expect: the checkpoint of this size that was published for English Wikipedia and books reaches 73.5
on GLUE (Turc et al. 2019).

With 128 positions it is the model that He and Xu (2020) describe:
--model.max-positions 128 --phases.1.length 128
"""

from bert_jax.config.data import DataConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.run import RunConfig

config = RunConfig(
    model=ModelConfig.medium(),
    data=DataConfig(source="text:corpus/*.txt.gz"),
)
