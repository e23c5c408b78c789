"""Tokenizers of BERT's relatives: the same ids as transformers' (tests/golden/make_tokenizers.py makes the files), or a
refusal."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tokenizers
from safetensors.numpy import load_file, save_file
from tokenizer_folders import GOLDEN, OF_FAIRSEQ, byte_file, unigram_file, wordpiece_file, write_vocabulary
from tokenizers import processors

from bert_jax.batching.sequences import joined
from bert_jax.config.data import VocabularyConfig
from bert_jax.config.model import ModelConfig
from bert_jax.interchange.model_directory import open_model_directory
from bert_jax.interchange.tokenizer_config import PublishedFolder
from bert_jax.interchange.tokenizer_files import read_tokenizer, write_tokenizer
from bert_jax.interchange.vocabulary_files import vocabulary_path
from bert_jax.pretraining.vocabulary import learned_tokenizer
from bert_jax.system.errors import UsageError
from bert_jax.text.tokenizer import load_tokenizer
from bert_jax.text.tokenizer_json import added_token
from bert_jax.text.vocabulary import MASK

KINDS = ("albert", "camembert", "modernbert", "roberta", "xlm-roberta")
PAIR = ("a cat", "the river's dog, 中文")
MASKED = f"Paris is the {MASK} of Fr{MASK}nce."
TEXTS = json.loads((GOLDEN / "texts.json").read_text())
IDS = np.load(GOLDEN / "ids.npz")


def copied(kind: str, folder: Path) -> Path:
    """A folder with the vocabulary of a published model."""
    write_vocabulary(kind, folder)
    return folder


def read(folder: Path, kind: str, size: int | None = None, lowercase: bool | None = None):
    model = ModelConfig(model_type=kind, vocabulary_size=size or int(IDS[f"{kind}.size"]))
    return read_tokenizer(PublishedFolder(folder), model, lowercase).tokenizer


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def tokenizer(kind, tmp_path_factory):
    return read(copied(kind, tmp_path_factory.mktemp(kind)), kind)


@pytest.mark.parametrize(("name", "space"), [("plain", ""), ("spaced", " ")])
def test_texts(kind, tokenizer, name, space):
    ids, lengths = IDS[f"{kind}.{name}"].tolist(), IDS[f"{kind}.{name}_lengths"]
    ends = np.cumsum(lengths, dtype=int).tolist()
    texts = [space + text for text in TEXTS]
    for text, found, begin, end in zip(texts, tokenizer.encode_batch(texts), [0, *ends], ends):
        assert found == ids[begin:end] == tokenizer.encode(text), text


def test_two_texts(kind, tokenizer):
    one = joined([tokenizer.encode(text) for text in PAIR], tokenizer.vocabulary, 64)
    assert one.ids == IDS[f"{kind}.pair"].tolist()
    first = len(tokenizer.encode(PAIR[0]))
    assert one.first_length == first + (2 if kind in ("albert", "modernbert") else 3)
    cut = joined([tokenizer.encode(text) for text in PAIR], tokenizer.vocabulary, 9)
    assert len(cut.ids) == 9 and cut.cut


def test_masks(kind, tokenizer):
    expected = IDS[f"{kind}.masked"].tolist()[1:-1]
    assert tokenizer.encode_special(MASKED) == expected
    own = tokenizer.vocabulary.pieces[tokenizer.vocabulary.mask_id]
    assert tokenizer.encode_special(MASKED.replace(MASK, own)) == expected
    assert tokenizer.vocabulary.mask_id not in tokenizer.encode(MASKED.replace(MASK, own))


def test_special_pieces_in_a_text_are_ordinary_characters(tokenizer):
    vocabulary = tokenizer.vocabulary
    text = "".join(f" {vocabulary.pieces[number]}x" for number in vocabulary.special_ids)
    assert not set(tokenizer.encode(text)) & {*vocabulary.special_ids} - {vocabulary.unknown_id}


def test_a_run_and_an_export_keep_it(kind, tokenizer, tmp_path):
    tokenizer.save(tmp_path / "run")
    (tmp_path / "export").mkdir()
    (tmp_path / "again").mkdir()
    write_tokenizer(tokenizer, tmp_path / "export", 512)
    imported = read(tmp_path / "export", kind)
    write_tokenizer(imported, tmp_path / "again", 512)
    for other in (load_tokenizer(tmp_path / "run"), imported):
        assert other.vocabulary.pieces == tokenizer.vocabulary.pieces
        assert other.vocabulary.special_ids == tokenizer.vocabulary.special_ids
        assert other.vocabulary.separators == tokenizer.vocabulary.separators
        assert other.encode_batch(TEXTS[:300]) == tokenizer.encode_batch(TEXTS[:300])
        assert other.encode_special(MASKED) == tokenizer.encode_special(MASKED)
    for path in (tmp_path / "export").iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes()
    assert ("vocab.json" in {path.name for path in (tmp_path / "export").iterdir()}) == (kind == "roberta")


def test_words_begin_where_spaces_are(tokenizer):
    ids = tokenizer.encode(" the river's old house")
    starts = [tokenizer.piece_text(number) for number in ids if tokenizer.starts_word[number]]
    assert "".join(map(tokenizer.piece_text, ids)).replace("▁", "") == "theriver'soldhouse"
    assert len(starts) >= 4 and tokenizer.decode(ids) == "the river's old house"


def put(name: str, text: str):
    return lambda folder: (folder / name).write_text(text)


def part(**changes):
    """Changes parts of the tokenizer.json, or keys of its model."""

    def change(folder: Path):
        value = json.loads((folder / "tokenizer.json").read_text())
        value = value | changes if "model" not in changes else value | {"model": value["model"] | changes["model"]}
        (folder / "tokenizer.json").write_text(json.dumps(value))

    return change


def config(**values):
    return put("tokenizer_config.json", json.dumps(values))


def renumbered(number: int):
    return lambda folder: put("vocab.json", json.dumps(pieces_of(folder) | {"the": number}))(folder)


def pieces_of(folder: Path) -> dict[str, int]:
    return json.loads((folder / "vocab.json").read_text())


def ended(folder: Path) -> None:
    put("vocab.json", json.dumps({f"{piece}</w>": number for piece, number in pieces_of(folder).items()}))(folder)


def listed(piece: str):
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    return put("vocab.txt", "\n".join([*special, *(piece.format(letter) for letter in "abcdefgh")]))


def framed(single: str, pair: str):
    """Sets a frame of texts without special tokens, each written as its name and the number of its segment."""
    single, pair = (
        [{"Sequence": {"id": name, "type_id": int(segment)}} for name, segment in frame.split()]
        for frame in (single, pair)
    )
    return part(post_processor={"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": {}})


NO_NUMBER = "'the' has the number {}; expected an integer from 0 to"
AUTHORS = "auto_map names the author's own tokenizer"
REFUSED = [
    ("roberta", lambda folder: (folder / "merges.txt").unlink(), "no merges.txt beside the vocab.json"),
    ("roberta", put("merges.txt", "#version: 0.2\nq qqq\n"), "line 2: 'q qqq'"),
    ("roberta", put("vocab.json", '{"a": "b"}'), "'a' has the number 'b'"),
    ("roberta", put("vocab.json", '{"a": 0}'), "isn't two pieces of vocab.json"),
    *(("roberta", renumbered(number), NO_NUMBER.format(number)) for number in (2**70, -1, True)),
    ("roberta", ended, "pieces have </w>, so they are a BPE's with ends of words"),
    ("roberta", config(pad_token="<s>"), "pad_token is '<s>', where the vocabulary has"),
    ("bert", lambda folder: (folder / "vocab.txt").rename(folder / "spiece.model"), "has no such file"),
    ("bert", listed("▁{}"), "sentencepiece's"),
    ("bert", listed("{}</w>"), "a BPE's with ends of words"),
    ("albert", put("tokenizer.json", '{"model": 1}'), "isn't read here"),
    ("modernbert", part(pre_tokenizer={"type": {"a": 1}}), "isn't read here"),
    ("modernbert", part(later=1), "has the part 'later', which isn't read here"),
    ("modernbert", part(normalizer={"type": "Precompiled", "precompiled_charsmap": "AAAAA"}), "charsmap is damaged"),
    ("modernbert", part(model={"dropout": 0.5}), "drops merges at random (dropout 0.5)"),
    ("modernbert", framed("A0", "B0 A1"), "post_processor sets 'B A'"),
    ("modernbert", framed("A1", "A0 B1"), "with the segments [1]"),
    ("bert", lambda folder: copied("modernbert", folder), "its model is 'BPE', and BertTokenizer has a WordPiece"),
    ("modernbert", part(model={"end_of_word_suffix": "</w>"}), "have '</w>' at the ends of words"),
    ("albert", config(mecab_kwargs={"mecab_dic": "ipadic"}), "mecab_kwargs is {'mecab_dic': 'ipadic'}, which changes"),
    ("albert", config(do_subword_tokenize=False), "do_subword_tokenize is False"),
    ("albert", config(do_word_tokenize=False), "do_word_tokenize is False"),
    ("albert", config(wordpieces_prefix="@@"), "wordpieces_prefix is '@@'"),
    ("albert", config(sp_model_kwargs={"enable_sampling": True}), "sp_model_kwargs is {'enable_sampling': True}"),
    ("albert", config(auto_map={"AutoTokenizer": ["own.Tokenizer", None]}), AUTHORS),
    ("albert", config(auto_map=["own.Tokenizer", None]), AUTHORS),
    ("albert", config(split_special_tokens=True), "split_special_tokens is True"),
]


@pytest.mark.parametrize(("kind", "change", "words"), REFUSED)
def test_what_gives_other_ids_is_refused_in_one_line(kind, change, words, tmp_path):
    change(copied(kind, tmp_path))
    with pytest.raises(UsageError) as refusal:
        read(tmp_path, kind, 5000)
    assert words in str(refusal.value) and "\n" not in str(refusal.value)


def test_lowercase_is_refused_where_the_vocabulary_cleans_texts(tmp_path):
    copied("albert", tmp_path)
    with pytest.raises(UsageError, match="--lowercase False is for a WordPiece"):
        read(tmp_path, "albert", lowercase=False)


def test_a_vocab_json_is_loaded_by_its_path(tmp_path):
    copied("roberta", tmp_path)
    assert load_tokenizer(tmp_path / "vocab.json").encode("the river") == read(tmp_path, "roberta").encode("the river")


@pytest.mark.parametrize("file", ["tokenizer_config.json", "config.json"])
def test_a_tokenizer_is_read_by_its_class(file, tmp_path):
    copied("xlm-roberta", tmp_path)
    (tmp_path / file).write_text(json.dumps({"tokenizer_class": "XLMRobertaTokenizerFast"}))
    of_bert = read(tmp_path, "bert", int(IDS["xlm-roberta.size"]))
    assert of_bert.encode_batch(TEXTS[:300]) == read(tmp_path, "xlm-roberta").encode_batch(TEXTS[:300])
    keys = {"tokenizer_class": "BertJapaneseTokenizer", "word_tokenizer_type": "mecab"}  # the class says more
    (tmp_path / file).write_text(json.dumps(keys))
    with pytest.raises(UsageError, match=f"{file}: tokenizer_class is 'BertJapaneseTokenizer', whose ids"):
        read(tmp_path, "xlm-roberta")


def test_a_bert_with_a_tokenizer_of_two_separators_has_one_segment(tmp_path, capsys):
    for name in ("config.json", "model.safetensors"):
        shutil.copy(GOLDEN.parent / "gelu_erf" / name, tmp_path)
    copied("xlm-roberta", tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "XLMRobertaTokenizerFast"}))
    size, tensors = int(IDS["xlm-roberta.size"]), load_file(tmp_path / "model.safetensors")
    for name in ("bert.embeddings.word_embeddings.weight", "cls.predictions.bias"):
        tensors[name] = np.resize(tensors[name], (size, *tensors[name].shape[1:]))
    save_file(tensors, tmp_path / "model.safetensors")
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps(config | {"vocab_size": size}))
    model = open_model_directory(tmp_path)
    assert model.config.num_segments == 1
    assert "of 2 segments the first alone is kept" in capsys.readouterr().err
    theirs = tensors["bert.embeddings.token_type_embeddings.weight"]
    np.testing.assert_array_equal(model.parameters()["bert"]["embeddings"]["segment"], theirs[:1])


def test_settings_that_are_not_known_are_named_in_one_line(tmp_path, capsys):
    copied("albert", tmp_path)
    path = tmp_path / "tokenizer_config.json"
    values = {"sp_model_kwargs": {}, "mecab_kwargs": None, "do_word_tokenize": True, "split_special_tokens": False}
    silent = {"padding_side": "left", "chat_template": "x", "clean_up_tokenization_spaces": True, "name_or_path": "a"}
    path.write_text(json.dumps(values | silent | {"auto_map": {"AutoModel": "own.Model"}, "bos_token": "[CLS]"}))
    read(tmp_path, "albert")
    assert not capsys.readouterr().err
    path.write_text(json.dumps({"drop_vowels": True, "padding_side": "left", "reversed": 1}))
    read(tmp_path, "albert")
    assert f"{path}: drop_vowels, reversed are not known here and not used" in capsys.readouterr().err


JAPANESE = "今日は天気がいいので、散歩に行きました。東京の町は人がたくさんいます。猫は机の上で寝ている。これは本です。"


def folder_of(file: dict, settings: dict, folder: Path) -> PublishedFolder:
    (folder / "tokenizer.json").write_text(json.dumps(file))
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    return PublishedFolder(folder)


def test_the_facts_say_where_they_come_from(tmp_path):
    settings = {"tokenizer_class": "BertTokenizer", "model_input_names": ["input_ids", "attention_mask"]}
    folder = folder_of(wordpiece_file(cased=True), settings, tmp_path)
    facts = {fact.name: fact for fact in read_tokenizer(folder, ModelConfig(vocabulary_size=1000)).facts}
    assert facts["tokenizer"].known_by == "tokenizer_config.json"
    assert facts["text"].value == "lower-cased, accents dropped, Chinese characters apart"
    assert facts["text"].known_by == facts["words"].known_by == "default of BertTokenizer"
    assert "up to 100 characters" in facts["words"].value and "in segment 0" in facts["special tokens"].value


def test_a_frame_without_class_token_is_for_joining_alone(tmp_path):
    folder = folder_of(byte_file(), {"tokenizer_class": "PreTrainedTokenizerFast"} | OF_FAIRSEQ, tmp_path)
    vocabulary = read_tokenizer(folder, ModelConfig(vocabulary_size=1000)).tokenizer.vocabulary
    with pytest.raises(UsageError, match="the tokenizer sets text and first second, and what was asked"):
        _ = vocabulary.separators
    with pytest.raises(UsageError, match="a text is empty"):
        joined([[]], vocabulary, 8)


def eurobert_file() -> dict:
    """A tokenizer.json as EuroBERT's: pieces of bytes without one for unknown words, special pieces of Llama 3."""
    file, names = byte_file(), ("<|begin_of_text|>", "<|end_of_text|>", "<|mask|>")
    kept = [piece for piece in file["model"]["vocab"] if piece not in OF_FAIRSEQ.values()]
    file["model"]["vocab"] = {piece: number for number, piece in enumerate(kept)}
    file["added_tokens"] = [added_token(name, number, special=True) for number, name in enumerate(names, len(kept))]
    begin, end = names[:2]
    template = processors.TemplateProcessing(
        single=f"{begin} $A {end}",
        pair=f"{begin} $A {end} $B:1 {end}:1",
        special_tokens=[(begin, len(kept)), (end, len(kept) + 1)],
    )
    return file | {"post_processor": json.loads(template.__getstate__())}


OF_EUROBERT = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "bos_token": "<|begin_of_text|>",
    "eos_token": "<|end_of_text|>",
    "pad_token": "<|end_of_text|>",
    "mask_token": "<|mask|>",
}


def test_a_vocabulary_of_bytes_may_lack_pieces_of_padding_and_unknown_words(tmp_path):
    """EuroBERT's published folder pads with the end of a text."""
    file = eurobert_file()
    read = read_tokenizer(
        folder_of(file, OF_EUROBERT, tmp_path), ModelConfig(model_type="eurobert", vocabulary_size=1000)
    )
    tokenizer, vocabulary = read.tokenizer, read.tokenizer.vocabulary
    library = tokenizers.Tokenizer.from_str(json.dumps(file))
    for text in TEXTS[:200]:
        begin, *ids, end = library.encode(text).ids
        assert tokenizer.encode(text) == ids, text
        assert (begin, end) == (vocabulary.cls_id, vocabulary.sep_id)
    assert vocabulary.pad_id == vocabulary.sep_id and not vocabulary.has_unknown
    assert tokenizer.encode_special(MASK) == [vocabulary.mask_id]
    (padding,) = [fact for fact in read.facts if fact.name == "padding"]
    assert padding.value == "<|end_of_text|>, which also ends a text" and padding.known_by == "tokenizer_config.json"

    (exported := tmp_path / "exported").mkdir()
    write_tokenizer(tokenizer, exported, 512)
    settings = json.loads((exported / "tokenizer_config.json").read_text())
    assert settings["pad_token"] == "<|end_of_text|>" and "unk_token" not in settings
    again = read_tokenizer(PublishedFolder(exported), ModelConfig(vocabulary_size=1000)).tokenizer.vocabulary
    assert (again.pieces, again.special) == (vocabulary.pieces, vocabulary.special)


def test_padding_by_a_piece_that_the_model_does_not_pad_with_is_refused(tmp_path):
    settings = OF_EUROBERT | {"pad_token": "<|mask|>"}
    with pytest.raises(UsageError, match="pad_token is '<.mask.>', where the vocabulary has '<.end_of_text.>'"):
        read_tokenizer(folder_of(eurobert_file(), settings, tmp_path), ModelConfig(vocabulary_size=1000))


@pytest.mark.parametrize("kind", ["unigram", "bpe", "wordpiece", "byte_bpe"])
def test_an_export_begins_no_word_after_a_mask(kind, transformers, tmp_path):
    lines = [JAPANESE[at : at + 9] for at in range(40)] * 3 + ["the river runs", "the old house runs"] * 9
    size = 265 if kind == "byte_bpe" else 90
    ours = learned_tokenizer(lines, VocabularyConfig(kind=kind, size=size))
    write_tokenizer(ours, tmp_path, 512)
    theirs = transformers.AutoTokenizer.from_pretrained(tmp_path)
    for text in (
        *(JAPANESE[at : at + 4] + MASK + JAPANESE[at + 4 : at + 9] for at in range(20)),
        *(f"the{left}{MASK}{right}runs {MASK}" for left in ("", " ", "\u3000") for right in ("", " ", "  ")),
        f" {MASK}の本", f"{MASK} {MASK}river", f"ล\u00a0ุ{MASK}\u00a0ุ",
    ):  # fmt: skip
        masked = text.replace(MASK, theirs.mask_token)
        assert ours.encode_special(text) == theirs(masked, add_special_tokens=False).input_ids, text


def test_a_sentencepiece_model_beside_another_tokenizer_json_is_not_read(tmp_path):
    lines = ["the river runs", "the old house runs"] * 9
    write_tokenizer(learned_tokenizer(lines, VocabularyConfig(kind="unigram", size=20)), tmp_path, 512)
    assert vocabulary_path(PublishedFolder(tmp_path)).name == "tokenizer.model"
    (tmp_path / "tokenizer.json").write_text(json.dumps(unigram_file("albert", GOLDEN / "spiece.model")))
    assert vocabulary_path(PublishedFolder(tmp_path)).name == "tokenizer.json"
