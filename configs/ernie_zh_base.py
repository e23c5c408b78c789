"""ERNIE for Chinese: BERT-base that learns characters, then words, then names of entities.

Three phases of one run, as the stages of Sun et al. (2019, section 3.2): what masking takes together is first a
character, then a word that jieba finds (extra zh), then an entity of a list of your own, a name a line (extra lexicon).
Places of entities beside the text do as well: --data.spans FIELD.

    bert-jax pretrain configs/ernie_zh_base.py --workdir runs/ernie --data.source "text:zh/*.txt.gz"

Hardware and time: the run is 3.4e19 FLOPs of matrix products, on one H100 at 40% of its bfloat16 peak a day, and in
proportion on other chips. That is arithmetic, not a measurement. The paper doesn't tell the stages' lengths: these are
a guess.

What to expect: ERNIE's own checkpoint, with ReLU and more text of other kinds, reaches 78.4 on XNLI's Chinese test set
where BERT's for Chinese has 77.2 (table 1).
"""

from bert_jax.config.data import DataConfig, VocabularyConfig
from bert_jax.config.model import ModelConfig
from bert_jax.config.objective import ObjectiveConfig
from bert_jax.config.run import RunConfig
from bert_jax.config.training import Phase

config = RunConfig(
    model=ModelConfig(model_type="ernie"),
    vocabulary=VocabularyConfig(size=21_128),
    data=DataConfig(source="text:zh/*.txt.gz", language="zh", words="jieba", entities="entities.txt"),
    objective=ObjectiveConfig(units="piece"),
    phases=(
        Phase(steps=400_000, length=256, batch_size=256),
        Phase(steps=300_000, length=256, batch_size=256, units="word"),
        Phase(steps=300_000, length=256, batch_size=256, units="entity"),
    ),
)
