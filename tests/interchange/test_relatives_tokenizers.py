"""The same ids as transformers' tokenizers of BERT's relatives: tests/golden/make_tokenizers.py makes the files."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from bert_jax.batching.sequences import joined
from bert_jax.config.model import ModelConfig
from bert_jax.interchange.model_directory import open_model_directory
from bert_jax.interchange.tokenizer_files import read_tokenizer, write_tokenizer
from bert_jax.system.errors import UsageError
from bert_jax.text.tokenizer import load_tokenizer
from bert_jax.text.vocabulary import MASK

FOLDER = Path(__file__).parents[1] / "golden" / "tokenizers"
FILES = {
    "roberta": ("vocab.json", "merges.txt"),
    "xlm-roberta": ("sentencepiece.bpe.model",),
    "camembert": ("sentencepiece.bpe.model",),
    "albert": ("spiece.model",),
    "modernbert": ("tokenizer.json",),
}
PAIR = ("a cat", "the river's dog, 中文")
MASKED = f"Paris is the {MASK} of Fr{MASK}nce."
TEXTS = json.loads((FOLDER / "texts.json").read_text())
IDS = np.load(FOLDER / "ids.npz")


def copied(kind: str, folder: Path) -> Path:
    """A folder with the vocabulary of a published model."""
    for name in FILES[kind]:
        shutil.copy(FOLDER / name, folder)
    return folder


def read(folder: Path, kind: str, size: int | None = None):
    size = int(IDS[f"{kind}.size"]) if size is None else size
    return read_tokenizer(folder, ModelConfig(model_type=kind, vocabulary_size=size))


@pytest.fixture(scope="module", params=sorted(FILES))
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
    assert tokenizer.encode_masked(MASKED) == expected
    own = tokenizer.vocabulary.pieces[tokenizer.vocabulary.mask_id]
    assert tokenizer.encode_masked(MASKED.replace(MASK, own)) == expected
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
        assert other.encode_masked(MASKED) == tokenizer.encode_masked(MASKED)
    for path in (tmp_path / "export").iterdir():
        assert path.read_bytes() == (tmp_path / "again" / path.name).read_bytes()
    assert ("vocab.json" in {path.name for path in (tmp_path / "export").iterdir()}) == (kind == "roberta")


def test_words_begin_where_spaces_are(tokenizer):
    ids = tokenizer.encode(" the river's old house")
    starts = [tokenizer.piece_text(number) for number in ids if tokenizer.starts_word[number]]
    assert "".join(map(tokenizer.piece_text, ids)).replace("▁", "") == "theriver'soldhouse"
    assert len(starts) >= 4 and tokenizer.decode(ids) == "the river's old house"


@pytest.mark.parametrize(
    ("kind", "change", "words"),
    [
        ("roberta", lambda folder: (folder / "merges.txt").unlink(), "no merges.txt beside the vocab.json"),
        ("roberta", lambda folder: (folder / "merges.txt").write_text("#version: 0.2\nq qqq\n"), "line 2: 'q qqq'"),
        ("roberta", lambda folder: (folder / "vocab.json").write_text('{"a": "b"}'), "'a' has the number 'b'"),
        ("roberta", lambda folder: (folder / "vocab.json").write_text('{"a": 0}'), "isn't two pieces of vocab.json"),
        ("albert", lambda folder: (folder / "tokenizer.json").write_text('{"model": 1}'), "isn't read here"),
    ],
)
def test_damaged_vocabularies_are_refused_in_one_line(kind, change, words, tmp_path):
    change(copied(kind, tmp_path))
    with pytest.raises(UsageError) as refusal:
        read(tmp_path, kind)
    assert words in str(refusal.value) and "\n" not in str(refusal.value)


def test_a_vocabulary_of_another_model_is_refused(tmp_path):
    with pytest.raises(UsageError, match="the vocabulary has 800 pieces and the model's table 799 rows"):
        read(copied("roberta", tmp_path), "roberta", 799)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"pad_token": "<s>"}))
    with pytest.raises(UsageError, match="pad_token in tokenizer_config.json is '<s>', where the vocabulary has"):
        read(tmp_path, "roberta")


def test_options_that_it_has_not_are_refused(tmp_path):
    copied("albert", tmp_path)
    with pytest.raises(UsageError, match="the tokenizer class BertTokenizer has no such file"):
        read(tmp_path, "bert", 1200)
    with pytest.raises(UsageError, match="--no-lowercase is for a WordPiece"):
        read_tokenizer(tmp_path, ModelConfig(model_type="albert", vocabulary_size=1200), lowercase=False)


def test_a_vocab_json_is_loaded_by_its_path(tmp_path):
    copied("roberta", tmp_path)
    assert load_tokenizer(tmp_path / "vocab.json").encode("the river") == read(tmp_path, "roberta").encode("the river")


@pytest.mark.parametrize("number", [2**70, -1, True])
def test_numbers_that_no_piece_has_are_refused(number, tmp_path):
    copied("roberta", tmp_path)
    ids = json.loads((tmp_path / "vocab.json").read_text())
    (tmp_path / "vocab.json").write_text(json.dumps(ids | {"the": number}))
    with pytest.raises(UsageError, match=f"'the' has the number {number}; expected an integer from 0 to"):
        read(tmp_path, "roberta")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"pre_tokenizer": {"type": {"a": 1}}}, "isn't read here"),
        ({"later": 1}, "has the part 'later', which isn't read here"),
        ({"normalizer": {"type": "Precompiled", "precompiled_charsmap": "AAAAA"}}, "charsmap is damaged"),
    ],
)
def test_parts_of_a_tokenizer_json_that_are_not_known_are_refused(change, words, tmp_path):
    value = json.loads((copied("modernbert", tmp_path) / "tokenizer.json").read_text())
    (tmp_path / "tokenizer.json").write_text(json.dumps(value | change))
    with pytest.raises(UsageError, match=words) as refused:
        read(tmp_path, "modernbert")
    assert "\n" not in str(refused.value)


def test_pieces_with_ends_of_words_are_refused(tmp_path):
    value = json.loads((copied("modernbert", tmp_path) / "tokenizer.json").read_text())
    value["model"]["end_of_word_suffix"] = "</w>"
    (tmp_path / "tokenizer.json").write_text(json.dumps(value))
    with pytest.raises(UsageError, match="have '</w>' at the ends of words"):
        read(tmp_path, "modernbert")
    (tmp_path / "tokenizer.json").unlink()
    ids = json.loads((copied("roberta", tmp_path) / "vocab.json").read_text())
    (tmp_path / "vocab.json").write_text(json.dumps({f"{piece}</w>": number for piece, number in ids.items()}))
    with pytest.raises(UsageError, match="pieces have </w>, so they are a BPE's with ends of words"):
        read(tmp_path, "roberta")


def test_a_roberta_whose_files_name_the_class_of_gpt2_is_read(tmp_path):
    before = read(copied("roberta", tmp_path), "roberta")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "GPT2Tokenizer"}))
    after = read(tmp_path, "roberta")
    assert after.encode_batch(TEXTS[:100]) == before.encode_batch(TEXTS[:100])
    assert after.vocabulary.special_ids == before.vocabulary.special_ids


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
        shutil.copy(FOLDER.parent / "gelu_erf" / name, tmp_path)
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


@pytest.mark.parametrize(("piece", "words"), [("▁{}", "sentencepiece's"), ("{}</w>", "a BPE's with ends of words")])
def test_pieces_of_another_algorithm_in_a_vocab_txt_are_refused(piece, words, tmp_path):
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(piece.format(letter) for letter in "abcdefgh")]
    (tmp_path / "vocab.txt").write_text("\n".join(pieces))
    with pytest.raises(UsageError, match=words):
        read(tmp_path, "bert", len(pieces))


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"mecab_kwargs": {"mecab_dic": "ipadic"}}, "mecab_kwargs is {'mecab_dic': 'ipadic'}, which changes ids"),
        ({"do_subword_tokenize": False}, "do_subword_tokenize is False"),
        ({"do_word_tokenize": False}, "do_word_tokenize is False"),
        ({"wordpieces_prefix": "@@"}, "wordpieces_prefix is '@@'"),
        ({"sp_model_kwargs": {"enable_sampling": True}}, "sp_model_kwargs is {'enable_sampling': True}"),
        ({"auto_map": {"AutoTokenizer": ["own.Tokenizer", None]}}, "auto_map names the author's own tokenizer"),
        ({"auto_map": ["own.Tokenizer", None]}, "auto_map names the author's own tokenizer"),
        ({"split_special_tokens": True}, "split_special_tokens is True"),
    ],
)
def test_settings_that_change_ids_are_refused(values, words, tmp_path):
    copied("albert", tmp_path)
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(values))
    with pytest.raises(UsageError) as refused:
        read(tmp_path, "albert")
    assert words in str(refused.value) and "\n" not in str(refused.value)


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
