"""DeBERTa-v3-small: 6 layers of width 768 with disentangled attention, 141 million parameters, and a generator of half
its depth.

The generator fills masks by a mask decoder; the discriminator tells which tokens are the generator's, and learns from
every token (He et al. 2021, arXiv 2111.09543). The discriminator's word table is the generator's plus a difference, so
that its loss doesn't pull at the generator's words. The published recipe: 500,000 steps of 8,192 sequences of 512
tokens, 15% of the pieces masked, over 160 GB of text and 128,000 pieces.

    bert-jax pretrain configs/deberta_v3_small.py --workdir runs/deberta --data.source "text:corpus/*.txt.gz"

Hardware and time: the run is 1.2e21 FLOPs of matrix products, on one H100 at 40% of its bfloat16 peak five weeks,
and in proportion on other chips. That is arithmetic, not a measurement.

What to expect: its authors report 88.3 on MNLI (matched) and an F1 of 82.9 on SQuAD 2.0 for their model.

The discriminator is what fine-tuning and features take. Its head is one product, which transformers loads as a
classifier of tokens; the authors' has a norm and a dense layer before it, which no class of transformers has. The
generator's mask decoder has none either, so its exported files are the encoder alone; --model.no-mask-decoder makes it
a DebertaV2ForMaskedLM. The authors train the two models by two optimizers in turn; here both losses are summed.
"""

from bert_jax.config.data import DataConfig, VocabularyConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.training import OptimizerConfig, Phase

config = RunConfig(
    model=ModelConfig(
        model_type="deberta-v2",
        num_layers=6,
        positions="disentangled",
        distance_buckets=256,
        clamped_distance=512,
        num_segments=0,
        activation="gelu_erf",
        pooler="gelu",
        layer_norm_epsilon=1e-7,
        mask_decoder=True,
        discriminator=True,
        discriminator_head="product",
        generator_divisor=1,
        generator_layers=3,
        shared_embeddings="disentangled",
    ),
    vocabulary=VocabularyConfig(kind="unigram", size=128_000, lowercase=False),
    data=DataConfig(source="text:corpus/*.txt.gz", short_sequence_probability=0.0),
    objective=ObjectiveConfig(predict="replaced", pair="none", mask_probability=1.0, random_probability=0.0),
    optimizer=OptimizerConfig(beta2=0.98, peak_learning_rate=6e-4, warmup=0.02),
    phases=(Phase(steps=500_000, length=512, batch_size=8192),),
)
