"""BERT-Tiny: 2 layers of width 128, 4.4 million parameters.

The published recipe: 900,000 steps at length 128, then 100,000 at 512.

    bert-jax pretrain configs/tiny.py --workdir runs/tiny --data.source "text:corpus/*.txt.gz"

Hardware and time: the run is 2.4e17 FLOPs of matrix products, on one H100 at 40% of its bfloat16 peak 10 minutes, and
in proportion on other chips. That is arithmetic, not a measurement.

What to expect: the checkpoint of this size that was published for English Wikipedia and books reaches 64.2
on GLUE (Turc et al. 2019).

On a CPU take fewer steps; configs/demo.py is made for that.
"""

from bert_jax.config.data import DataConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.run import RunConfig

config = RunConfig(
    model=ModelConfig.tiny(),
    data=DataConfig(source="text:corpus/*.txt.gz"),
)
