"""Experiment: three layers of width 192 with three heads of 64 in place of six of 32.

    bert-jax pretrain configs/experiments/three_layers_wide_heads.py --workdir runs/three_layers_wide_heads \
      --data.source "text:corpus/*.txt.gz"

All else is as in configs/experiments/three_layers_cut_masks.py.
"""

from bert_jax.cli.config_files import load_config

base = load_config("experiments/three_layers_cut_masks")
config = base.replace(model=base.model.replace(num_heads=3))
