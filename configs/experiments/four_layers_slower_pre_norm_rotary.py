"""Experiment: four_layers_bert_slower.py with norms before the sublayers and rotary positions.

    bert-jax pretrain configs/experiments/four_layers_slower_pre_norm_rotary.py --workdir runs/pre_norm_rotary \
      --data.source "text:corpus/*.txt.gz"

All else is as in configs/experiments/four_layers_bert_slower.py.
"""

from bert_jax.cli.config_files import load_config

base = load_config("experiments/four_layers_bert_slower")
config = base.replace(model=base.model.replace(norm="pre", positions="rotary"))
