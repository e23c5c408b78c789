"""One small model of many languages, on a laptop.

    bert-jax pretrain configs/languages_demo.py --workdir runs/languages

Put a text of each language into languages/CODE.txt.gz (paragraphs, blank lines between documents) and change LANGUAGES
to the codes that you have.

Hardware and time: two CPU cores, 46 minutes beside other work (61 minutes of processor time), with the preparation of
80 MB of text.
What to expect: with 25 languages held-out MLM accuracy 0.288 (always the most frequent piece: 0.033), 0.364 in the best
language and 0.217 in the worst; 0.195 as the mean over languages after 3,000 steps.

Shares are proportional to size^0.7 at first, then to size^0.5 and size^0.3, so that small languages get larger shares
at the end, when the learning rate falls and the model keeps most of what it sees (Marone et al. 2025, mmBERT). All
pieces are of one unigram vocabulary, which is trained on the sources at the shares of size^0.7. Case and accents are
kept, as few languages can do without them.
"""

from runpy import run_path

from bert_jax.config.run import RunConfig
from bert_jax.config.training import Phase

LANGUAGES = tuple("ar cs de en eo es eu fa fi fr he hu id it ja ko lv pl pt ro ru sv sw vi zh".split())

demo: RunConfig = run_path(__file__.replace("languages_demo", "demo"))["config"]

config = demo.change(
    model={"num_layers": 3, "hidden_size": 192, "num_heads": 6, "feedforward_size": 384, "initializer_range": 0.05},
    vocabulary={
        "kind": "unigram",
        "size": 24_000,
        "lowercase": False,
        "character_coverage": 0.9999,
        "sample_megabytes": 20,
    },
    data={
        "source": tuple(f"text:languages/{code}.txt.gz" for code in LANGUAGES),
        "language": LANGUAGES,
        "smoothing": 0.7,
        "held_out": 0.02,
        "whole_sentences": False,
    },
    optimizer={"peak_learning_rate": 2e-3},
    evaluation={"max_sequences": 6400},
).replace(
    phases=(
        Phase(steps=8_000, length=64, batch_size=32),
        Phase(steps=4_000, length=64, batch_size=32, smoothing=0.5),
        Phase(steps=4_000, length=64, batch_size=32, smoothing=0.3),
    )
)
