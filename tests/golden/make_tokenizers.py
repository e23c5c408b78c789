"""Makes tests/golden/tokenizers: vocabularies of BERT's relatives, and what transformers' tokenizers make of texts.

    pip install transformers
    python tests/golden/make_tokenizers.py TEXT [TEXT ...]

TEXT is a file with a paragraph a line, gzip'ed; several languages are good. It writes vocab.json and merges.txt
(RoBERTa), sentencepiece.bpe.model (XLM-R and CamemBERT), spiece.model (ALBERT), texts.json, and ids.npz: for each kind
the ids of all texts one after the other and how many each has, in the same way with a space before each text, and the
ids of two texts together and of a text with masks. Only to be run where the files are to be made anew.
"""

import gzip
import json
import random
import sys
import tempfile
from pathlib import Path

import numpy as np
from sentencepiece import SentencePieceTrainer
from tokenizers import ByteLevelBPETokenizer
from transformers import AutoTokenizer

HERE = Path(__file__).parent / "tokenizers"
CLASSES = {
    "roberta": "RobertaTokenizer",
    "xlm-roberta": "XLMRobertaTokenizer",
    "camembert": "CamembertTokenizer",
    "albert": "AlbertTokenizer",
}
FILES = {
    "roberta": ("vocab.json", "merges.txt"),
    "xlm-roberta": ("sentencepiece.bpe.model",),
    "camembert": ("sentencepiece.bpe.model",),
    "albert": ("spiece.model",),
}
SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
ALBERTS = {
    "pad_id": 0,
    "unk_id": 1,
    "bos_id": -1,
    "eos_id": -1,
    "pad_piece": "<pad>",
    "control_symbols": ["[CLS]", "[SEP]"],
    "user_defined_symbols": ["[MASK]"],
}
ROBERTAS_MASK = {
    "__type": "AddedToken",
    "content": "<mask>",
    "lstrip": True,
    "rstrip": False,
    "normalized": False,
    "single_word": False,
    "special": True,
}
"""As the published tokenizer.json has it; the class by itself keeps the space before it as a piece."""
COUNT = 2000
PAIR = ("a cat", "the river's dog, 中文")
MASKED = "Paris is the {mask} of Fr{mask}nce."
_FEW = ((0x20, 0x21), (0x20, 0x21), (0x21, 0x7F), (0xA0, 0x250), (0x300, 0x370), (0x2000, 0x2070), (0x3040, 0x30FF))
_MANY = ((0, 0x3000), (0x3400, 0x9FFF), (0xAC00, 0xD7A3), (0xE000, 0xFFFF), (0x10000, 0x20000))


def texts_of(lines: list[str]) -> list[str]:
    """COUNT texts: parts of lines, and characters drawn at random."""
    drawn, texts = random.Random(0), []
    while len(texts) < COUNT:
        way = drawn.random()
        if way < 0.3:
            line = drawn.choice(lines)
            begin = drawn.randrange(len(line))
            texts.append(line[begin : begin + drawn.randrange(1, 60)])
        else:
            blocks = _FEW if way < 0.7 else _MANY
            count = drawn.randrange(1, 16)
            texts.append("".join(chr(drawn.randrange(*drawn.choice(blocks))) for _ in range(count)))
    return texts


def train(lines: list[str]) -> None:
    """Writes the vocabularies."""
    bytes_bpe = ByteLevelBPETokenizer()
    bytes_bpe.train_from_iterator(lines, vocab_size=800, special_tokens=SPECIAL, show_progress=False)
    bytes_bpe.save_model(str(HERE))
    for name, settings in (("sentencepiece.bpe.model", {}), ("spiece.model", ALBERTS)):
        with (HERE / name).open("wb") as file:
            SentencePieceTrainer.train(
                sentence_iterator=iter(lines),
                model_writer=file,
                vocab_size=1200,
                model_type="unigram",
                character_coverage=0.99,
                minloglevel=2,
                **settings,
            )


def ids_of(kind: str, texts: list[str]) -> dict[str, np.ndarray]:
    """What transformers' tokenizer of this kind makes of them."""
    with tempfile.TemporaryDirectory() as folder:
        for name in FILES[kind]:
            Path(folder, name).write_bytes((HERE / name).read_bytes())
        settings = {"tokenizer_class": CLASSES[kind]} | ({"mask_token": ROBERTAS_MASK} if kind == "roberta" else {})
        Path(folder, "tokenizer_config.json").write_text(json.dumps(settings))
        Path(folder, "config.json").write_text(json.dumps({"model_type": kind}))
        tokenizer = AutoTokenizer.from_pretrained(folder)
    assert type(tokenizer).__name__ == CLASSES[kind]
    found = {"size": np.array(len(tokenizer)), "pair": np.array(tokenizer(*PAIR)["input_ids"], np.uint16)}
    found["masked"] = np.array(tokenizer(MASKED.format(mask=tokenizer.mask_token))["input_ids"], np.uint16)
    for name, space in (("plain", ""), ("spaced", " ")):
        ids = [tokenizer.encode(space + text, add_special_tokens=False) for text in texts]
        found[name] = np.concatenate(ids).astype(np.uint16)
        found[f"{name}_lengths"] = np.array([*map(len, ids)], np.uint16)
    return {f"{kind}.{name}": value for name, value in found.items()}


if __name__ == "__main__":
    HERE.mkdir(exist_ok=True)
    lines = [line.strip()[:400] for path in sys.argv[1:] for line in gzip.open(path, "rt") if line.strip()][::40]
    train(lines)
    texts = texts_of(lines)
    (HERE / "texts.json").write_text(json.dumps(texts) + "\n")
    arrays = [ids_of(kind, texts) for kind in CLASSES]
    np.savez_compressed(HERE / "ids.npz", **{name: value for found in arrays for name, value in found.items()})
