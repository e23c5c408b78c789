"""ELECTRA-small: 12 layers of width 256, 13 million parameters, and a generator of a quarter of its width.

The generator fills masks; the discriminator tells which tokens are the generator's, and learns from every token (Clark
et al. 2020). The published recipe: 1,000,000 steps of 128 sequences of 128 tokens, tables of width 128, 15% of the
tokens masked, of which none is replaced by a random piece.

    bert-jax pretrain configs/electra_small.py --workdir runs/electra_small --data.source "text:corpus/*.txt.gz"

Hardware and time: the run is 1.1e18 FLOPs of matrix products, on one H100 at 20% of its bfloat16 peak an hour and a
half, and in proportion on other chips. That is arithmetic, not a measurement; layers as narrow as these keep an
accelerator less busy than BERT-base's. By the README of its code the run takes a little over four days on one V100, and
gives decent results after 200,000 steps, ten hours.

What to expect: the paper reports a mean of 79.9 over the tasks of GLUE (table 1, dev sets; a BERT of its
size 75.1, GPT 78.8). The README has SST-2 88.3, MNLI 78.9 and STS-B 86.8 (Spearman) for a run on OpenWebText.

The discriminator is what fine-tuning and features take; bert-jax fill-mask asks the generator. GELU is by the error
function: the head of a generator has no other in transformers.
"""

from bert_jax.config.data import DataConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.training import OptimizerConfig, Phase

config = RunConfig(
    model=ModelConfig(
        model_type="electra",
        hidden_size=256,
        num_heads=4,
        embedding_size=128,
        max_positions=128,
        activation="gelu_erf",
        pooler="gelu",
        discriminator=True,
        generator_divisor=4,
    ),
    data=DataConfig(source="text:corpus/*.txt.gz"),
    objective=ObjectiveConfig(predict="replaced", pair="none", mask_probability=0.85, random_probability=0.0),
    optimizer=OptimizerConfig(peak_learning_rate=5e-4, warmup=0.01),
    phases=(Phase(steps=1_000_000, length=128, batch_size=128),),
)
