"""Experiment: ELECTRA's generator and discriminator, both of modern.py's blocks.

    bert-jax pretrain configs/experiments/modern_electra.py --workdir runs/modern_electra \
      --data.source "text:corpus/*.txt.gz"

As electra.py, whose objective it has. All else is as in configs/experiments/modern.py.
"""

from bert_jax.cli.config_files import load_config

base, electra = load_config("experiments/modern"), load_config("experiments/electra")
discriminator = {"discriminator": True, "generator_divisor": electra.model.generator_divisor}
config = base.replace(model=base.model.replace(**discriminator), objective=electra.objective)
