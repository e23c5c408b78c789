"""XLNet-base: 12 layers of width 768 with relative positions, 117 million parameters.

A sixth of the tokens is predicted one after the other in random order, each by a query stream that doesn't see it (Yang
et al. 2019). Targets are spans of one to five words. There is no memory of earlier rows (Transformer-XL), because here
a row is a function of its ordinal alone.

    bert-jax pretrain configs/xlnet_base.py --workdir runs/xlnet_base --data.source "text:corpus/*.txt.gz"

The paper's recipe is that of the large model. This one has the batches, steps and rate of BERT-base, with sequences of
512 tokens throughout.

Hardware and time: the run is 9.1e19 FLOPs of matrix products, on one H100 at 40% of its bfloat16 peak two days and
sixteen hours, and in proportion on other chips. That is arithmetic, not a measurement: relative attention has no kernel
here.

What to expect: the paper reports 85.6 on MNLI and 93.4 on SST-2 for a base model with memory that was trained on BERT's
text, 85.3 and 92.8 without memory (table 6; BERT-base 84.3 and 92.8).
"""

from bert_jax.config.data import DataConfig, VocabularyConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.training import Phase

config = RunConfig(
    model=ModelConfig(model_type="xlnet", positions="relative", class_token="last", num_segments=0),
    vocabulary=VocabularyConfig(kind="unigram", size=32_000, lowercase=False),
    data=DataConfig(source="text:corpus/*.txt.gz", short_sequence_probability=0.0),
    objective=ObjectiveConfig(
        predict="permuted", pair="none", units="context", masked_share=1 / 6, evaluated_share=1 / 6
    ),
    phases=(Phase(steps=1_000_000, length=512, batch_size=256),),
)
