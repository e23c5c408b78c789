"""BERT-base for Chinese that masks whole words: all characters of a word that jieba finds (extra zh).

configs/bert_zh_base.py with the masks of Cui et al. (2021). The pieces are characters as before, so a model is used and
fine-tuned in the same way.

    bert-jax pretrain configs/bert_zh_wwm_base.py --workdir runs/bert_zh_wwm --data.source "text:zh/*.txt.gz"

Hardware and time: the run is 2.2e19 FLOPs of matrix products, on one H100 at 40% of its bfloat16 peak 16 hours, and in
proportion on other chips. That is arithmetic, not a measurement.

What to expect: the authors' checkpoint, which goes on from BERT's with the same text, reaches 78.2 on XNLI's Chinese
test set where BERT's has 77.8 (Cui et al. 2021).
"""

from runpy import run_path

from bert_jax.config.run import RunConfig

bert_zh_base: RunConfig = run_path(__file__.replace("bert_zh_wwm_base", "bert_zh_base"))["config"]

config = bert_zh_base.change(data={"words": "jieba"}, objective={"units": "word"})
