"""Experiment: three layers of width 192 on sequences that end where they are full.

    bert-jax pretrain configs/experiments/three_layers_cut.py --workdir runs/three_layers_cut \
      --data.source "text:corpus/*.txt.gz"

All else is as in configs/experiments/three_layers.py, whose sequences end with a
sentence and are 23% padding.
"""

from bert_jax.cli.config_files import load_config

base = load_config("experiments/three_layers")
config = base.replace(data=base.data.replace(whole_sentences=False))
