"""Makes tests/golden/vectors: what sentence-transformers makes of texts, with random weights.

    pip install sentence-transformers
    python tests/golden/make_vectors.py

A folder for each model: `bert` as version 6 of the library writes it, and `roberta` with the files of versions before 6
and no Normalize. Each has expected.safetensors with the normalised vectors of TEXTS by each way of pooling. Only to be
run where the files are to be made anew.
"""

import json
import shutil
import string
import tempfile
from pathlib import Path

import torch
from make import SPECIAL, randomize
from safetensors.torch import save_file
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Normalize, Pooling, Transformer
from tokenizers import ByteLevelBPETokenizer
from transformers import BertConfig, BertModel, BertTokenizer, RobertaConfig, RobertaModel, RobertaTokenizer

HERE = Path(__file__).parent / "vectors"
TEXTS = [
    "A dog runs.",
    "a DOG",
    "",
    "  some blanks before",
    "naïve café, 中文",
    "one two three four five six seven eight",
]
SIZES = {
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
}
MAX_LENGTH = 12
"""Fewer tokens than the last text has."""
WAYS = ("cls_token", "mean_tokens", "max_tokens", "mean_sqrt_len_tokens")


def bert(folder: Path) -> None:
    """Writes an encoder with pooler and a lower-casing WordPiece of letters, as transformers writes them."""
    letters = [*string.ascii_lowercase, ",", ".", "中"]
    pieces = [*SPECIAL, *letters, *(f"##{letter}" for letter in letters), "dog", "two", "##ne"]
    (folder / "vocab.txt").write_text("".join(f"{piece}\n" for piece in pieces))
    randomize(BertModel(BertConfig(vocab_size=len(pieces), max_position_embeddings=20, **SIZES))).save_pretrained(
        folder
    )
    BertTokenizer(str(folder / "vocab.txt"), do_lower_case=True).save_pretrained(folder)


def roberta(folder: Path) -> None:
    """Writes an encoder with a byte-level BPE, as transformers writes them."""
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    trained = ByteLevelBPETokenizer()
    trained.train_from_iterator(TEXTS * 9, vocab_size=280, special_tokens=special, show_progress=False)
    trained.save_model(str(folder))
    count = trained.get_vocab_size()
    config = RobertaConfig(
        vocab_size=count, max_position_embeddings=22, type_vocab_size=1, layer_norm_eps=1e-5, **SIZES
    )
    randomize(RobertaModel(config, add_pooling_layer=False)).save_pretrained(folder)
    vocabulary, merges = (folder / name for name in ("vocab.json", "merges.txt"))
    RobertaTokenizer(str(vocabulary), str(merges)).save_pretrained(folder)


def write_json(path: Path, value: object) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(value, indent=2) + "\n")


def as_before(folder: Path, width: int, pool: str) -> None:
    """Writes the files of versions before 6 beside a model."""
    modules = [("", "Transformer"), ("1_Pooling", "Pooling")]
    write_json(
        folder / "modules.json",
        [
            {"idx": number, "name": str(number), "path": path, "type": f"sentence_transformers.models.{name}"}
            for number, (path, name) in enumerate(modules)
        ],
    )
    switches = {f"pooling_mode_{way}": way in (f"{pool}_token", f"{pool}_tokens") for way in WAYS}
    write_json(folder / "1_Pooling" / "config.json", {"word_embedding_dimension": width, **switches})
    write_json(folder / "sentence_bert_config.json", {"max_seq_length": MAX_LENGTH, "do_lower_case": False})
    versions = {"sentence_transformers": "2.0.0", "transformers": "4.6.1", "pytorch": "1.8.1"}
    write_json(folder / "config_sentence_transformers.json", {"__version__": versions})


def make(write, is_new: bool) -> None:
    """Writes the folder of one model."""
    folder, expected = HERE / write.__name__, {}
    shutil.rmtree(folder, ignore_errors=True)
    with tempfile.TemporaryDirectory() as temporary:
        source = Path(temporary) / "model"
        source.mkdir()
        write(source)
        for pool in ("mean", "cls", "max"):
            if is_new:
                encoder = Transformer(str(source), max_seq_length=MAX_LENGTH)
                model = SentenceTransformer(modules=[encoder, Pooling(16, pool), Normalize()], device="cpu")
            else:
                as_before(source, 16, pool)
                model = SentenceTransformer(str(source), device="cpu")
            vectors = torch.tensor(model.encode(TEXTS))
            expected[pool] = torch.nn.functional.normalize(vectors, dim=1)
            if is_new and pool == "cls":
                model.save(str(folder), create_model_card=False)
        if not is_new:
            shutil.copytree(source, folder)
    save_file(expected, folder / "expected.safetensors")
    write_json(folder / "texts.json", TEXTS)


if __name__ == "__main__":
    make(bert, is_new=True)
    make(roberta, is_new=False)
