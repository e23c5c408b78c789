"""BERT-large: 24 layers of width 1024, 336 million parameters.

The published recipe: 900,000 steps at length 128, then 100,000 at 512.

    bert-jax pretrain configs/large.py --workdir runs/large --data.source "text:corpus/*.txt.gz"

Hardware and time: the run is 7.9e19 FLOPs of matrix products, on one H100 at 40% of its bfloat16 peak 2.3 days, and in
proportion on other chips. That is arithmetic, not a measurement.

What to expect: the checkpoint of this size that was published for English Wikipedia and books reaches 82.1
on GLUE (Devlin et al. 2019, table 1).

The second phase needs the most memory: --execution.accumulation 8 takes an eighth of it, --execution.remat full
less still; neither changes the result. Over several devices, --mesh.fsdp N splits parameters and optimizer state too.
"""

from bert_jax.config.data import DataConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.run import RunConfig

config = RunConfig(
    model=ModelConfig.large(),
    data=DataConfig(source="text:corpus/*.txt.gz"),
)
