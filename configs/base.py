"""BERT-base: 12 layers of width 768, 110 million parameters.

The published recipe: 900,000 steps at length 128, then 100,000 at 512.

    bert-jax pretrain configs/base.py --workdir runs/base --data.source "text:corpus/*.txt.gz"

Hardware and time: the run is 2.2e19 FLOPs of matrix products, on one H100 at 40% of its bfloat16 peak 16 hours, and in
proportion on other chips. That is arithmetic, not a measurement.

What to expect: the checkpoint of this size that was published for English Wikipedia and books reaches 79.6
on GLUE (Devlin et al. 2019, table 1).

The second phase needs the most memory: --execution.accumulation 4 takes a quarter of it, --execution.remat full
less still; neither changes the result. Over several devices, --mesh.fsdp N splits parameters and optimizer state too.
"""

from bert_jax.config.data import DataConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.run import RunConfig

config = RunConfig(
    model=ModelConfig.base(),
    data=DataConfig(source="text:corpus/*.txt.gz"),
)
