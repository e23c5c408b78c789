"""Experiment: the block of modern.py, and 30% of the tokens are masked at first and 15% at the end.

    bert-jax pretrain configs/experiments/modern_masks.py --workdir runs/modern_masks \
      --data.source "text:corpus/*.txt.gz"

All else is as in configs/experiments/modern.py.
"""

from bert_jax.cli.config_files import load_config

base = load_config("experiments/modern")
config = base.replace(objective=base.objective.replace(masked_share=0.3, masked_share_end=0.15))
