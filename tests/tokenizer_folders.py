"""Folders of tokenizers with the edits that people's folders have, drawn by a seed."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from xlnet_vocabulary import write_xlnets_vocabulary

from bert_jax.text.sentencepiece import read_model
from bert_jax.text.vocabulary import SPECIAL_PIECES

GOLDEN = Path(__file__).parent / "golden" / "tokenizers"
KEYS = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
OF_BERT = {"unk_token": "[UNK]", "sep_token": "[SEP]", "pad_token": "[PAD]", "cls_token": "[CLS]"}
OF_BERT |= {"mask_token": "[MASK]"}
OF_FAIRSEQ = dict(zip(KEYS, ("<s>", "</s>", "<unk>", "</s>", "<pad>", "<s>", "<mask>"), strict=True))
OF_MPNET = OF_FAIRSEQ | {"unk_token": "[UNK]"}
OF_ALBERT = dict(zip(KEYS, ("[CLS]", "[SEP]", "<unk>", "[SEP]", "<pad>", "[CLS]", "[MASK]"), strict=True))
OF_DEBERTA = dict(zip(KEYS, ("[CLS]", "[SEP]", "[UNK]", "[SEP]", "[PAD]", "[CLS]", "[MASK]"), strict=True))
OF_XLNET = dict(zip(KEYS, ("<s>", "</s>", "<unk>", "<sep>", "<pad>", "<cls>", "<mask>"), strict=True))
BASES = {
    "bert": ("BertTokenizer", OF_BERT),
    "bert_cased": ("BertTokenizer", OF_BERT),
    "electra": ("ElectraTokenizer", OF_BERT),
    "distilbert": ("DistilBertTokenizer", OF_BERT),
    "mpnet": ("MPNetTokenizer", OF_MPNET),
    "roberta": ("RobertaTokenizer", OF_FAIRSEQ),
    "gpt2": ("GPT2Tokenizer", OF_FAIRSEQ),
    "xlm-roberta": ("XLMRobertaTokenizer", OF_FAIRSEQ),
    "camembert": ("CamembertTokenizer", OF_FAIRSEQ),
    "albert": ("AlbertTokenizer", OF_ALBERT),
    "xlnet": ("XLNetTokenizer", OF_XLNET),
    "deberta-v2": ("DebertaV2Tokenizer", OF_DEBERTA),
    "modernbert": ("PreTrainedTokenizerFast", OF_BERT),
    "unigram": ("PreTrainedTokenizerFast", OF_FAIRSEQ),
}
"""The class and the special tokens of each kind of folder."""
MODEL_TYPES = {
    "bert_cased": "bert",
    "distilbert": "bert",
    "gpt2": "roberta",
    "unigram": "xlm-roberta",
}
MODEL_FILES = dict.fromkeys(("xlm-roberta", "camembert", "unigram"), "sentencepiece.bpe.model")
MODEL_FILES |= {"albert": "spiece.model", "xlnet": "spiece.model", "deberta-v2": "spm.model"}
OTHER_FILES = dict.fromkeys(("roberta", "gpt2"), ("vocab.json", "merges.txt")) | {"modernbert": ("tokenizer.json",)}
WORDS = "the river old house cat dog run ##ning ##s s ##er ##ed in of and a b c e d ' . , ( ) ! ? 中 文 é".split()
MORE = ["[E1]", "<ent>", "river", "old house", "Straße", "@", "ing", " x", "中", "<|user|>", "THE", "e\u0301", "x1"]
"""Texts of added tokens."""
CONTROLS = ["<eod>", "<lang>", "<2de>", "\u2581river", "[E2]"]
BLANKS = "\u00a0 \u3000 \x85 \x0b \u2028 \u2003 \x0c \u2029 \x1c \u200b".split(" ")
SWITCHES = (
    "do_lower_case strip_accents keep_accents tokenize_chinese_chars add_prefix_space trim_offsets remove_space "
    "do_basic_tokenize clean_up_tokenization_spaces split_special_tokens add_bos_token add_eos_token legacy from_slow "
    "use_fast"
).split()
HARMLESS = {
    "model_max_length": [512, 128, None, 1e30],
    "padding_side": ["left", "right"],
    "truncation_side": ["left", "right"],
    "truncation": [True, "longest_first"],
    "padding": [True, "max_length"],
    "max_length": [8],
    "stride": [2],
    "pad_token_id": [0, 1],
    "pad_to_multiple_of": [8],
    "chat_template": ["{{ messages }}", None, [{"name": "default", "template": "x"}]],
    "chat_control_tokens": [["<|user|>"], None],
    "response_template": [None],
    "name_or_path": ["/somewhere/else", "google/bert"],
    "special_tokens_map_file": ["/somewhere/special_tokens_map.json"],
    "tokenizer_file": ["/somewhere/tokenizer.json", None],
    "vocab_file": ["/somewhere/vocab.txt"],
    "errors": ["replace", "strict"],
    "processor_class": ["X"],
    "max_len": [64],
    "never_split": [None, [], ["river"]],
    "sp_model_kwargs": [{}, None],
    "model_input_names": [["input_ids", "attention_mask"], ["input_ids", "token_type_ids", "attention_mask"]],
    "return_token_type_ids": [True],
    "word_tokenizer_type": ["basic", None],
    "drop_vowels": [True],
    "backend": ["tokenizers"],
    "is_local": [True],
    "unk_id": [0, 1, 2, 5, None],
}

Json = dict[str, Any]


def capitals() -> list[str]:
    return [word.capitalize() for word in WORDS if word.isalpha() and word.isascii() and len(word) > 1]


def wordpieces(cased: bool, kind: str = "bert") -> list[str]:
    letters = [chr(number) for number in range(ord("a"), ord("z") + 1)]
    letters += [letter.upper() for letter in letters] if cased else []
    pieces = [*SPECIAL_PIECES, "[unused0]", "[unused1]", *WORDS, *(capitals() if cased else [])]
    pieces = list(dict.fromkeys([*pieces, *letters, *(f"##{letter}" for letter in letters), "##é", *"0123456789"]))
    return ["<s>", "<pad>", "</s>", "<unk>", *pieces, "<mask>"] if kind == "mpnet" else pieces


def wordpiece_file(cased: bool, kind: str = "bert") -> Json:
    ids = {piece: number for number, piece in enumerate(wordpieces(cased, kind))}
    tokenizer = Tokenizer(models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=100))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=not cased)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    return json.loads(tokenizer.to_str())


def write_vocabulary(kind: str, folder: Path) -> Path:
    """Writes the vocabulary of a kind of folder as its class's file, which is returned, or as its files."""
    path = folder / MODEL_FILES.get(kind, "vocab.txt")
    if kind == "xlnet":
        write_xlnets_vocabulary(folder)
    elif kind == "deberta-v2":  # ALBERT's pieces with DeBERTa's special ones; [MASK] is no piece of its model
        model = read_model(GOLDEN / "spiece.model")
        names = {"<pad>": "[PAD]", "<unk>": "[UNK]", "[MASK]": "[unused0]"}
        for piece in model.pieces:
            piece.piece = names.get(piece.piece, piece.piece)
        path.write_bytes(model.SerializeToString(deterministic=True))
    elif kind in MODEL_FILES:
        shutil.copy(GOLDEN / path.name, path)
    elif kind in OTHER_FILES:
        for name in OTHER_FILES[kind]:
            shutil.copy(GOLDEN / name, folder)
    else:
        path.write_text("\n".join(wordpieces(kind == "bert_cased", kind)))
    return path


def byte_file() -> Json:
    merges = [line for line in (GOLDEN / "merges.txt").read_text().split("\n") if line and line[0] != "#"]
    ids = json.loads((GOLDEN / "vocab.json").read_text())
    tokenizer = Tokenizer(models.BPE(ids, [tuple(line.split(" ")) for line in merges]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    return json.loads(tokenizer.to_str())


def unigram_file(kind: str, model: Path) -> Json:
    """A tokenizer.json of the sentencepiece model, with the class's numbers."""
    proto = read_model(model)
    pieces = [(piece.piece, piece.score) for piece in proto.pieces]
    unknown = 0
    if kind in ("xlm-roberta", "unigram"):
        pieces, unknown = [(piece, 0.0) for piece in ("<s>", "<pad>", "</s>", "<unk>")] + pieces[3:], 3
        pieces += [("<mask>", 0.0)]
    elif kind == "camembert":
        first = [("<s>NOTUSED", 0.0), ("<pad>", 0.0), ("</s>NOTUSED", 0.0), ("<unk>", 0.0), ("<unk>NOTUSED", -100.0)]
        pieces, unknown = first + pieces[1:] + [("<mask>", 0.0)], 3
    elif kind in ("albert", "deberta-v2"):
        unknown = 1
    tokenizer = Tokenizer(models.Unigram(pieces, unknown, False))
    charsmap = proto.normalizer_spec.precompiled_charsmap
    if charsmap:
        tokenizer.normalizer = normalizers.Precompiled(charsmap)
    spaces = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    tokenizer.pre_tokenizer, tokenizer.decoder = pre_tokenizers.Sequence(spaces), decoders.Metaspace()
    return json.loads(tokenizer.to_str())


FRAMES = {
    "bert": ("C $A S", "C $A S $B:1 S:1"),
    "fairseq": ("C $A S", "C $A S S $B S"),
    "end": ("$A S", "$A S $B:1 S:1"),
    "begin": ("C $A", "C $A $B:1"),
    "last": ("$A S C", "$A S $B:1 S:1 C"),
}


def template(ids: dict[str, int], cls: str, sep: str, single: str, pair: str) -> Json:
    """The frame of a text and of a pair, in which C and S stand for the special tokens `cls` and `sep`."""
    written = [frame.translate(str.maketrans({"C": cls, "S": sep})) for frame in (single, pair)]
    step = processors.TemplateProcessing(*written, special_tokens=[(piece, ids[piece]) for piece in (cls, sep)])
    return json.loads(step.__getstate__())


class Folder:
    """A tokenizer's folder that is drawn by `seed`."""

    def __init__(self, seed: str, path: Path):
        self.rng, self.path = random.Random(seed), path
        self.kind = self.rng.choice(list(BASES))
        self.name, self.special = BASES[self.kind]
        self.config: Json = {"tokenizer_class": self.name, **self.special}
        self.model: Json = {"model_type": MODEL_TYPES.get(self.kind, self.kind)}
        self.file: Json | None = None
        self._write_vocabulary()
        if self.file is not None:
            self._edit_file()
        self._edit_settings()
        self._edit_tokens()
        if self.file is not None:
            self._write("tokenizer.json", self.file)
        if self.config is not None:
            self._write("tokenizer_config.json", self.config)
        self._write("config.json", self.model)

    def maybe(self, share: float) -> bool:
        return self.rng.random() < share

    def _write(self, name: str, value: object) -> None:
        (self.path / name).write_text(json.dumps(value))

    def _write_vocabulary(self) -> None:
        """The vocabulary in old files, in a tokenizer.json, or in both."""
        form = self.rng.choice(["old", "json", "both"])
        if self.kind in ("modernbert", "unigram"):
            form = "json"
        if self.kind in MODEL_FILES:
            model = write_vocabulary(self.kind, self.path)
            if form != "json":
                self._edit_model(model)
            if form != "old":
                self.file = unigram_file(self.kind, model)
            if form == "json":
                model.unlink()
            elif self.maybe(0.04):
                other = self.rng.choice(["tokenizer.model", "spiece.model", "sentencepiece.bpe.model", "spm.model"])
                model.rename(self.path / other)
            elif self.maybe(0.04):
                other = self.rng.choice(["spiece.model", "sentencepiece.bpe.model"])
                if other != model.name:
                    shutil.copy(GOLDEN / other, self.path)
        elif self.special in (OF_BERT, OF_MPNET) and self.kind != "modernbert":
            cased = self.kind == "bert_cased" or (self.kind != "bert" and self.maybe(0.5))
            if form != "json":
                self._write_lines(wordpieces(cased, self.kind))
            if form != "old":
                self.file = wordpiece_file(cased, self.kind)
        elif self.kind == "modernbert":
            self.file = json.loads((GOLDEN / "tokenizer.json").read_text())
        else:
            if form != "json":
                write_vocabulary(self.kind, self.path)
            if form != "old":
                self.file = byte_file()
        if self.maybe(0.02):
            (self.path / "vocab.txt").write_text("\n".join(wordpieces(True)))

    def _write_lines(self, pieces: list[str]) -> None:
        """A vocab.txt, with blanks at the ends of lines."""
        lines, ordinary = list(pieces), range(5, len(pieces))
        if self.maybe(0.3):
            for number in self.rng.sample(ordinary, 4):
                lines[number] += self.rng.choice(BLANKS)
        if self.maybe(0.1):
            lines += self.rng.sample(["\u2028", "##\u2028", "\u3000", "##\xa0", "x\u2003y", "river\xa0", "\u200b"], 3)
        if self.maybe(0.05):
            lines.append(self.rng.choice(["", "river", "[E1]", "##[", "Köln"]))
        end = self.rng.choice(["\n", "\n", "\r\n"])
        text = end.join(lines) + self.rng.choice([end, ""])
        (self.path / "vocab.txt").write_bytes(text.encode())

    def _edit_model(self, path: Path) -> None:
        """Changes pieces and settings of a sentencepiece model."""
        model, rng = read_model(path), self.rng
        if self.maybe(0.25):
            for piece in rng.sample(CONTROLS, rng.randrange(1, 3)):
                kind = rng.choice([3, 3, 4, 1])
                if piece not in {one.piece for one in model.pieces}:
                    model.pieces.add(piece=piece, score=rng.choice([0.0, -5.0, -20.0]), type=kind)
        if self.maybe(0.15):
            piece = rng.choice(list(model.pieces)[8:200])
            piece.type = rng.choice([3, 4, 5])
        if self.maybe(0.1):
            model.trainer_spec.unk_id = rng.choice([0, 1, 2, 7])
        if self.maybe(0.1):
            setting = rng.choice(["add_dummy_prefix", "remove_extra_whitespaces", "escape_whitespaces"])
            setattr(model.normalizer_spec, setting, False)
        if self.maybe(0.05):
            model.normalizer_spec.precompiled_charsmap = b""
        if self.maybe(0.04):
            setting = rng.choice(["byte_fallback", "treat_whitespace_as_suffix"])
            setattr(model.trainer_spec, setting, True)
        path.write_bytes(model.SerializeToString(deterministic=True))

    def _edit_file(self) -> None:
        """Changes parts of the tokenizer.json."""
        file, rng = self.file, self.rng
        assert file is not None
        ids = self._ids()
        cls, sep = self.special.get("cls_token", "<s>"), self.special.get("sep_token", "</s>")
        known = {token["content"] for token in file["added_tokens"]}
        wanted = [piece for piece in dict.fromkeys(self.special.values()) if piece not in known]
        if not self.maybe(0.1):
            file["added_tokens"] += [self._token(piece, ids.get(piece, len(ids)), special=True) for piece in wanted]
        for content in rng.sample(MORE, rng.choice([0, 0, 1, 2, 3])):
            number = ids.get(
                content, max(max(ids.values()) + 1, *(token["id"] + 1 for token in file["added_tokens"]), 0)
            )
            if content not in {token["content"] for token in file["added_tokens"]}:
                file["added_tokens"].append(self._token(content, number))
        file["added_tokens"].sort(key=lambda token: token["id"])
        frames = {name: template(ids, cls, sep, *frame) for name, frame in FRAMES.items()}
        frames |= {
            "none": None,
            "RobertaProcessing": {
                "type": "RobertaProcessing", "sep": [sep, ids[sep]], "cls": [cls, ids[cls]], "trim_offsets": True,
                "add_prefix_space": rng.choice([True, False]),
            },
            "BertProcessing": {"type": "BertProcessing", "sep": [sep, ids[sep]], "cls": [cls, ids[cls]]},
        }  # fmt: skip
        frame = rng.choice(["bert", "bert", "fairseq", *frames])
        file["post_processor"] = frames[frame]
        if frames[frame] and self.maybe(0.1):
            bytes_step = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": False, "use_regex": True}
            file["post_processor"] = {"type": "Sequence", "processors": [bytes_step, frames[frame]]}
        if self.maybe(0.2):
            pad = {"strategy": "BatchLongest", "direction": "Right", "pad_to_multiple_of": None, "pad_id": 0}
            file["padding"] = pad | {"pad_type_id": 0, "pad_token": rng.choice(["[PAD]", "<pad>"])}
            file["truncation"] = {"direction": "Right", "max_length": 8, "strategy": "LongestFirst", "stride": 0}
        if self.maybe(0.25):
            self._edit_steps(file)
        if self.maybe(0.05):
            file["model"].pop("type")
        if self.maybe(0.2):
            self._edit_file_model(file["model"])
        if self.maybe(0.03):
            file["decoder"] = rng.choice([None, {"type": "Fuse"}])

    def _edit_steps(self, file: Json) -> None:
        rng, before = self.rng, file["normalizer"]
        more = [{"type": "Lowercase"}, {"type": "NFC"}, {"type": "NFKC"}, {"type": "StripAccents"}]
        more += [{"type": "Strip", "strip_left": True, "strip_right": True}]
        more += [{"type": "Replace", "pattern": {"String": "the"}, "content": "a"}, {"type": "Prepend", "prepend": "x"}]
        sequence = [*([before] if before else []), *rng.sample(more, 2)]
        bert = {"type": "BertNormalizer", "clean_text": True, "handle_chinese_chars": True, "strip_accents": None}
        steps = rng.choice(
            [
                None,
                rng.choice(more),
                {"type": "Sequence", "normalizers": sequence},
                bert | {"lowercase": rng.random() < 0.5},
            ]
        )
        if self.maybe(0.7):
            file["normalizer"] = steps
        else:
            words = file["pre_tokenizer"]
            digits = {"type": "Digits", "individual_digits": True}
            punctuation = {"type": "Punctuation", "behavior": "Isolated"}
            if self.maybe(0.5) or words["type"] == "BertPreTokenizer":
                words = {"type": "Sequence", "pretokenizers": [rng.choice([digits, punctuation]), words]}
            elif words["type"] == "ByteLevel":
                words = words | {"add_prefix_space": rng.random() < 0.5, "use_regex": rng.random() < 0.5}
            else:
                scheme = rng.choice(["always", "first", "never"])
                words = {"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": rng.random() < 0.5}
            file["pre_tokenizer"] = words

    def _edit_file_model(self, model: Json) -> None:
        choices = {
            "WordPiece": {"max_input_chars_per_word": [5, 200], "unk_token": ["[PAD]"]},
            "BPE": {
                "ignore_merges": [True], "fuse_unk": [True], "byte_fallback": [True], "dropout": [0.1, 0.0],
                "unk_token": ["<unk>", None], "continuing_subword_prefix": ["", None],
                "end_of_word_suffix": ["", "</w>"],
            },
            "Unigram": {"unk_id": [0, 1, 2, 7], "byte_fallback": [True]},
        }  # fmt: skip
        kind = "Unigram" if isinstance(model["vocab"], list) else "BPE" if "merges" in model else "WordPiece"
        key = self.rng.choice(list(choices[kind]))
        model[key] = self.rng.choice(choices[kind][key])
        if kind == "BPE" and self.maybe(0.3):
            model["merges"] = [
                merge.split(" ") if isinstance(merge, str) else " ".join(merge) for merge in model["merges"]
            ]

    def _ids(self) -> dict[str, int]:
        """Numbers of the pieces so far."""
        if self.file is not None:
            vocab = self.file["model"]["vocab"]
            ids = vocab if isinstance(vocab, dict) else {piece: number for number, (piece, _) in enumerate(vocab)}
            return ids | {token["content"]: token["id"] for token in self.file["added_tokens"]}
        if (self.path / "vocab.txt").exists() and self.special in (OF_BERT, OF_MPNET):
            lines = (self.path / "vocab.txt").read_text().split("\n")
            return {line: number for number, line in enumerate(lines) if line}
        if (self.path / "vocab.json").exists():
            return json.loads((self.path / "vocab.json").read_text())
        models = [path for path in self.path.iterdir() if path.suffix == ".model"]
        vocab = unigram_file(self.kind, models[0])["model"]["vocab"]
        return {piece: number for number, (piece, _) in enumerate(vocab)}

    def _flags(self, special: bool = False) -> Json:
        flags = {name: self.maybe(0.2) for name in ("lstrip", "rstrip", "single_word")}
        return flags | {"normalized": self.maybe(0.2 if special else 0.6), "special": special or self.maybe(0.3)}

    def _token(self, content: str, number: int, special: bool = False) -> Json:
        flags = self._flags(special) if self.maybe(0.5) else dict.fromkeys(self._flags(), False)
        flags |= {"special": special or flags["special"]}
        return {"id": number, "content": content, **flags}

    def _written(self, content: str, key: str = "") -> object:
        """A token as a file writes it: as text or as an object."""
        if self.maybe(0.6):
            return content
        token: Json = {"__type": "AddedToken", "content": content, **self._flags(self.maybe(0.7))}
        for flag in self.rng.sample(
            ["lstrip", "rstrip", "single_word", "normalized", "special"], self.rng.choice([0, 0, 1, 2])
        ):
            del token[flag]
        return token

    def _edit_settings(self) -> None:
        rng, config = self.rng, self.config
        for key in SWITCHES:
            if self.maybe(0.12 if key not in ("split_special_tokens", "do_basic_tokenize") else 0.03):
                config[key] = rng.choice([True, False, None])
        for key in rng.sample(list(HARMLESS), rng.choice([0, 0, 1, 3])):
            config[key] = rng.choice(HARMLESS[key])
        if self.kind == "xlnet" and self.maybe(0.15):
            config["unk_id"] = rng.choice(HARMLESS["unk_id"])
        way = rng.choice(["", "", "Fast", "missing", "null", "model", "generic", "other"])
        if way == "Fast":
            config["tokenizer_class"] += "Fast" * (not self.name.endswith("Fast"))
        elif way in ("missing", "model"):
            del config["tokenizer_class"]
            self.model |= {"tokenizer_class": self.name} if way == "model" else {}
        elif way == "null":
            config["tokenizer_class"] = None
        elif way == "generic":
            config["tokenizer_class"] = rng.choice(
                ["PreTrainedTokenizerFast", "TokenizersBackend", "PreTrainedTokenizer"]
            )
        elif self.maybe(0.2):
            config["tokenizer_class"] = rng.choice([name for name, _ in BASES.values()])
        if self.maybe(0.05):
            self.model["model_type"] = rng.choice([*MODEL_TYPES.values(), "albert", "electra", "ernie", "modernbert"])
        if self.maybe(0.04):
            config["fast_tokenizer_files"] = ["tokenizer.json", "tokenizer.4.0.0.json"]
            if self.file is not None and self.maybe(0.5):
                older = self.file | {"normalizer": {"type": "Lowercase"}}
                self._write("tokenizer.4.0.0.json", older)

    def _edit_tokens(self) -> None:
        """Special and added tokens in tokenizer_config.json, special_tokens_map.json and added_tokens.json."""
        rng, config, ids = self.rng, self.config, self._ids()
        for key in KEYS:
            if key in config and self.maybe(0.08):
                del config[key]
        last = max(ids.values())
        further = [content for content in MORE if content not in ids]
        for key in [key for key in KEYS if key in config]:
            if self.maybe(0.1):
                config[key] = self._written(config[key])
            elif self.maybe(0.03):
                config[key] = rng.choice([None, "[NEW]", "<s>", rng.choice(list(ids))])
        if self.maybe(0.05):
            config["bos_token"] = rng.choice([None, "[CLS]", "<s>", "[BOS]"])
        for key in ("additional_special_tokens", "extra_special_tokens"):
            if self.maybe(0.2):
                config[key] = self._list(key)
        if self.maybe(0.05):
            config["model_specific_special_tokens"] = {"entity_token": self._written(rng.choice(MORE))}
        if self.maybe(0.07):
            config["entity_token"] = rng.choice(
                [self._written(rng.choice(MORE)), {"content": rng.choice(MORE)}, None, 5]
            )
        if self.maybe(0.4):
            table = {
                str(ids[piece]): self._token(piece, 0, True) for piece in set(self.special.values()) if piece in ids
            }
            table |= {str(token["id"]): token for token in (self.file or {}).get("added_tokens", []) if self.maybe(0.8)}
            if self.maybe(0.3):
                gone = self.special["mask_token"]
                table = {number: token for number, token in table.items() if token["content"] != gone}
            if self.maybe(0.2):
                table = {}
            if further and self.maybe(0.3):
                table[str(last + 1)] = self._token(rng.choice(further), 0)
            table = {
                number: {key: flag for key, flag in token.items() if key != "id"} for number, token in table.items()
            }
            if self.maybe(0.1):
                for token in table.values():
                    token.pop(rng.choice(["normalized", "special", "lstrip"]), None)
            config["added_tokens_decoder"] = None if self.maybe(0.03) else table
        if self.maybe(0.25):
            added = {content: last + place for place, content in enumerate(rng.sample(further, rng.randrange(3)), 1)}
            if self.maybe(0.2):
                added |= {piece: ids[piece] for piece in rng.sample(list(ids), 2)}
            if self.maybe(0.05):
                added |= {"far": last + 50}
            self._write("added_tokens.json", added)
        if self.maybe(0.35):
            named: Json = {key: self._written(piece) for key, piece in self.special.items() if self.maybe(0.8)}
            for key in [key for key in named if self.maybe(0.3)]:
                named[key] = {"content": self.special[key], "lstrip": self.maybe(0.3), "rstrip": False} | {
                    "normalized": self.maybe(0.2), "single_word": False
                }  # fmt: skip
            for key in ("additional_special_tokens", "extra_special_tokens"):
                if self.maybe(0.25):
                    named[key] = self._list(key)
            if self.maybe(0.05):
                named[rng.choice(KEYS)] = None
            if self.maybe(0.05):
                named["entity_token"] = self._written(rng.choice(MORE))
            self._write("special_tokens_map.json", named)
        if self.maybe(0.07):
            self.config = None

    def _list(self, key: str) -> object:
        rng = self.rng
        tokens = [self._written(content) for content in rng.sample(MORE + CONTROLS, rng.randrange(1, 4))]
        ways: list[object] = [[], tokens, tokens, None]
        if key == "extra_special_tokens":
            ways += [{f"name{place}{rng.choice(['_token', ''])}": token for place, token in enumerate(tokens)}, {}]
        return rng.choice(ways)


def texts_for(seed: str, special: set[str], count: int = 150) -> list[str]:
    """Texts with added tokens in them, and none of the `special` pieces."""
    rng, golden = random.Random(seed), json.loads((GOLDEN / "texts.json").read_text())
    parts = [*MORE, *MORE, *CONTROLS, "<s>NOTUSED", "<eop>", "<|endoftext|>", "[unused0]", "far", "[NEW]", "[BOS]"]
    parts += ["The", "river's", "HOUSE", "running", "caf\u00e9", "Zwölf", "中文", "``x''", "a1b22", "x" * 101, "\u00ad"]
    parts += ["é", "ÉCOLE", "(x)", "don't", "🙂", "ﬁ", "①", "\u200b", "river\u00a0x", "old  house", "##s", "0", "\x85"]
    texts = rng.sample(golden, count // 3)
    while len(texts) < count:
        joints = ["", " ", " ", "  ", "\n", "\t", "\u3000"]
        texts.append("".join(rng.choice(parts) + rng.choice(joints) for _ in range(rng.randrange(1, 7))))
    hidden = [piece.casefold() for piece in special]
    return [text for text in texts if not any(piece in text.casefold() for piece in hidden)]
