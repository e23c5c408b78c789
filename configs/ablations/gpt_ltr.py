"""Ablation of pretraining: each next token from those before it, as GPT. Compared with configs/ablations/mlm_nsp.py.

    bert-jax pretrain configs/ablations/gpt_ltr.py --workdir runs/gpt_ltr --data.source "text:corpus/*.txt.gz"

All settings but these are those of configs/ablations/mlm_nsp.py, also for a copy of this file. A step predicts at six
times as many positions as those of the other two, and takes 2.7 times their FLOPs.
"""

from bert_jax.cli.config_files import load_config
from bert_jax.config.objective import ObjectiveConfig

bert = load_config("ablations/mlm_nsp")
config = bert.replace(
    model=bert.model.replace(causal=True),
    objective=ObjectiveConfig(predict="next", pair="none"),
)
