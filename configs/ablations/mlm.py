"""Ablation of pretraining: masked words alone. Compared with configs/ablations/mlm_nsp.py.

    bert-jax pretrain configs/ablations/mlm.py --workdir runs/mlm --data.source "text:corpus/*.txt.gz"

All settings but these are those of configs/ablations/mlm_nsp.py, also for a copy of this file.
"""

from bert_jax.cli.config_files import load_config
from bert_jax.config.objective import ObjectiveConfig

config = load_config("ablations/mlm_nsp").replace(objective=ObjectiveConfig(pair="none"))
