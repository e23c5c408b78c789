"""Experiment: 30% of the tokens are masked at first and 15% at the end.

    bert-jax pretrain configs/experiments/falling_masks.py --workdir runs/falling \
      --data.source "text:corpus/*.txt.gz"

All else is as in configs/experiments/full_sentences.py.
"""

from bert_jax.cli.config_files import load_config

base = load_config("experiments/full_sentences")
config = base.replace(objective=base.objective.replace(masked_share=0.3, masked_share_end=0.15))
