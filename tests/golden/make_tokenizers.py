"""Makes tests/golden/tokenizers: vocabularies of BERT's relatives, and what transformers' tokenizers make of texts.

    pip install transformers
    python tests/golden/make_tokenizers.py TEXT [TEXT ...]

TEXT is a file with a paragraph a line, gzip'ed; several languages are good. It writes vocab.json and merges.txt
(RoBERTa), sentencepiece.bpe.model (XLM-R and CamemBERT), spiece.model (ALBERT), tokenizer.json (ModernBERT), and also
texts.json and ids.npz: for each kind the ids of all texts one after the other, how many each has, the same with a space
before each text, and the ids of two texts together and of a text with masks. What is there already stays as it is.
"""

import gzip
import json
import random
import sys
import tempfile
from pathlib import Path

import numpy as np
from sentencepiece import SentencePieceTrainer
from tokenizers import AddedToken, ByteLevelBPETokenizer, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.processors import TemplateProcessing
from tokenizers.trainers import BpeTrainer
from transformers import AutoTokenizer

HERE = Path(__file__).parent / "tokenizers"
CLASSES = {
    "roberta": "RobertaTokenizer",
    "xlm-roberta": "XLMRobertaTokenizer",
    "camembert": "CamembertTokenizer",
    "albert": "AlbertTokenizer",
    "modernbert": "PreTrainedTokenizerFast",
}
FILES = {
    "roberta": ("vocab.json", "merges.txt"),
    "xlm-roberta": ("sentencepiece.bpe.model",),
    "camembert": ("sentencepiece.bpe.model",),
    "albert": ("spiece.model",),
    "modernbert": ("tokenizer.json",),
}
MODERNBERTS = ["[UNK]", "[CLS]", "[SEP]", "[PAD]", "[MASK]"]
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


def train_modernbert(lines: list[str]) -> None:
    """Writes tokenizer.json with the steps of the published one: NFC, bytes, runs of spaces as added pieces, and the
    special pieces last."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.normalizer, tokenizer.decoder = normalizers.NFC(), decoders.ByteLevel()
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    tokenizer.train_from_iterator(lines, BpeTrainer(vocab_size=800, initial_alphabet=alphabet, show_progress=False))
    tokenizer.add_tokens([AddedToken(" " * count, normalized=True) for count in range(24, 1, -1)])
    special = [AddedToken(piece, normalized=False, lstrip=piece == "[MASK]") for piece in MODERNBERTS]
    tokenizer.add_special_tokens(special)
    ends = [(piece, tokenizer.token_to_id(piece)) for piece in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = TemplateProcessing("[CLS] $A [SEP]", "[CLS] $A [SEP] $B [SEP]", ends)
    tokenizer.save(str(HERE / "tokenizer.json"))


def train(lines: list[str]) -> None:
    """Writes the other vocabularies."""
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
        if kind == "modernbert":
            settings |= {f"{piece.strip('[]').lower()}_token": piece for piece in MODERNBERTS}
        Path(folder, "tokenizer_config.json").write_text(json.dumps(settings))
        Path(folder, "config.json").write_text(json.dumps({"model_type": kind}))
        tokenizer = AutoTokenizer.from_pretrained(folder)
    assert type(tokenizer).__name__ in (CLASSES[kind], "TokenizersBackend")
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
    if not (HERE / "texts.json").exists():
        train(lines)
        (HERE / "texts.json").write_text(json.dumps(texts_of(lines)) + "\n")
    if not (HERE / "tokenizer.json").exists():
        train_modernbert(lines)
    texts = json.loads((HERE / "texts.json").read_text())
    made = dict(np.load(HERE / "ids.npz")) if (HERE / "ids.npz").exists() else {}
    for kind in CLASSES:
        if f"{kind}.size" not in made:
            made |= ids_of(kind, texts)
    np.savez_compressed(HERE / "ids.npz", **made)
