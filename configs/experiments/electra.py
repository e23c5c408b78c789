"""Experiment: a generator of half the width fills masks, and the model tells which tokens are the generator's.

    bert-jax pretrain configs/experiments/electra.py --workdir runs/electra --data.source "text:corpus/*.txt.gz"

As ELECTRA, with its loss weights and none of the masked tokens replaced at random. The model has no figure for masked
tokens: its generator fills them, and is not what is fine-tuned. All else is as in
configs/experiments/full_sentences.py.
"""

from bert_jax.cli.config_files import load_config

base = load_config("experiments/full_sentences")
config = base.replace(
    model=base.model.replace(discriminator=True, generator_divisor=2),
    objective=base.objective.replace(predict="replaced", mask_probability=0.85, random_probability=0.0),
)
