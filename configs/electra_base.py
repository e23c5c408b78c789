"""ELECTRA-base: 12 layers of width 768, 109 million parameters, and a generator of a third of its width.

The generator fills masks; the discriminator tells which tokens are the generator's, and learns from every token (Clark
et al. 2020). The published recipe: 766,000 steps of 256 sequences of 512 tokens, 15% of the tokens masked, of which
none is replaced by a random piece.

    bert-jax pretrain configs/electra_base.py --workdir runs/electra_base --data.source "text:corpus/*.txt.gz"

Hardware and time: the run is 6.7e19 FLOPs of matrix products, on one H100 at 40% of its bfloat16 peak two days, and in
proportion on other chips. That is arithmetic, not a measurement.

What to expect: the paper reports a mean of 85.1 over the tasks of GLUE (table 1, dev sets; BERT-base 82.2).

The discriminator is what fine-tuning and features take; bert-jax fill-mask asks the generator. GELU is by the error
function: the head of a generator has no other in transformers. --execution.accumulation 4 takes a quarter
of the memory, --execution.remat full less still; neither changes the result.
"""

from bert_jax.config.data import DataConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.training import OptimizerConfig, Phase

config = RunConfig(
    model=ModelConfig(
        model_type="electra",
        activation="gelu_erf",
        pooler="gelu",
        discriminator=True,
        generator_divisor=3,
    ),
    data=DataConfig(source="text:corpus/*.txt.gz"),
    objective=ObjectiveConfig(predict="replaced", pair="none", mask_probability=0.85, random_probability=0.0),
    optimizer=OptimizerConfig(peak_learning_rate=2e-4, warmup=10 / 766),
    phases=(Phase(steps=766_000, length=512, batch_size=256),),
)
