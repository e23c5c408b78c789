"""Experiment: as modern_muon.py, at the rate of AdamW.

    bert-jax pretrain configs/experiments/modern_muon_slower.py --workdir runs/modern_muon_slower \
      --data.source "text:corpus/*.txt.gz"

All else is as in configs/experiments/modern_muon.py.
"""

from bert_jax.cli.config_files import load_config

base = load_config("experiments/modern_muon")
config = base.replace(optimizer=base.optimizer.replace(peak_learning_rate=3e-3))
