"""XLM-RoBERTa-base: a unigram vocabulary of 250,002 pieces for 100 languages.

RoBERTa's recipe for many languages (Conneau et al. 2020): full sentences, no question about pairs, shares proportional
to size^0.3. The paper trained for 1.5 million steps of 8,192 sequences of 512 tokens on 2.5 TB of web text; 500,000 are
set here. Sources and languages come from a file, a [[source]] table with source and language for each.

    bert-jax pretrain configs/xlmr_base.py --workdir runs/xlmr --data.source @sources.toml

Hardware and time: the run is 1.5e21 FLOPs of matrix products, on one H100 at 40% of its bfloat16 peak six weeks, and
in proportion on other chips. That is arithmetic, not a measurement.

What to expect: nobody has measured this run. bert-jax import takes the published model of this size, whose vocabulary
was trained by other rules.
"""

from runpy import run_path

from bert_jax.config.run import RunConfig

roberta_base: RunConfig = run_path(__file__.replace("xlmr_base", "roberta_base"))["config"]

config = roberta_base.change(
    model={"model_type": "xlm-roberta"},
    vocabulary={"kind": "unigram", "size": 250_002, "character_coverage": 0.9995},
    data={"source": "text:cc/*.txt.gz", "smoothing": 0.3},
)
