"""A small ModernBERT: 10 layers of width 384 over a context of 8,192 tokens.

The settings of configs/modern_base.py at about a fifth of its size, with the widths of Ettin's 32 million (Weller et
al. 2025): for one GPU or a small TPU slice.

    bert-jax pretrain configs/modern_small.py --workdir runs/modern_small --data.source "text:corpus/*.txt.gz"

Hardware and time: the run is 2.0e18 FLOPs of matrix products, on one H100 at 40% of its bfloat16 peak 85 minutes, and
in proportion on other chips. That is arithmetic, not a measurement; so small a model reaches less of the peak.

What to expect: it sees 15 billion tokens, and Ettin's 1.7 trillion. Nobody has measured this run.
"""

from runpy import run_path

from bert_jax.config.model import ModelConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.training import Phase

modern_base: RunConfig = run_path(__file__.replace("modern_small", "modern_base"))["config"]

config = modern_base.replace(
    model=ModelConfig.modern(num_layers=10, hidden_size=384, num_heads=6, feedforward_size=576),
    phases=(
        Phase(steps=45_000, length=1024, batch_size=288, rotary_base=10_000.0),
        Phase(steps=5_000, length=8192, batch_size=36),
    ),
)
