import gzip
import re

import pytest

from bert_jax.system.errors import UsageError
from bert_jax.text.tokenizer import load_tokenizer
from bert_jax.text.vocabulary import SPECIAL_PIECES, Vocabulary

PIECES = [*SPECIAL_PIECES, "a", "##b"]


def test_it_reads_what_it_writes(tmp_path):
    pieces = (*PIECES, "\u2028", "\x85")  # lines end at line feeds alone
    Vocabulary(pieces).write(tmp_path / "vocab.txt")
    read = Vocabulary.read(tmp_path / "vocab.txt")
    assert read.pieces == pieces
    assert (read.pad_id, read.unknown_id, read.cls_id, read.sep_id, read.mask_id) == (0, 1, 2, 3, 4)
    (tmp_path / "vocab.txt").write_bytes("\r\n".join(PIECES).encode())
    assert Vocabulary.read(tmp_path / "vocab.txt").pieces == tuple(PIECES)


@pytest.mark.parametrize(
    "content, words",
    [
        ("\n".join(PIECES).replace("[MASK]", "mask").encode(), "lacks [MASK]"),
        ("\n".join([*PIECES, "a"]).encode(), "'a' twice (lines 6 and 8)"),
        ("\n".join([*PIECES, "", "c"]).encode(), "vocab.txt, line 8: the piece '' is empty"),
        ("\n".join([*PIECES, "c d"]).encode(), "line 8: the piece 'c d' holds a space, a tab or a line break"),
        ("\n".join([*PIECES, "c "]).encode(), "line 8: the piece 'c ' holds a space"),
        ("\n".join([*PIECES, "c\td"]).encode(), "line 8: the piece 'c\\td' holds a space"),
        ("\n".join([*PIECES, "\0"]).encode(), "line 8: the piece '\\x00' holds the character U+0000"),
        (b"a" * 33_000_000, "it has more than 32,000,000 bytes"),
        (b"\xff\xfe", "not UTF-8"),
    ],
)
def test_a_bad_file_is_refused_in_a_line(tmp_path, content, words):
    (tmp_path / "vocab.txt").write_bytes(content)
    with pytest.raises(UsageError, match=re.escape(words)):
        Vocabulary.read(tmp_path / "vocab.txt")
    with pytest.raises(UsageError, match="no vocabulary at .*absent.txt"):
        Vocabulary.read(tmp_path / "absent.txt")


@pytest.mark.parametrize("content", ['{"do_lower_case": true}', "[]", "{"])
def test_another_programs_tokenizer_directory_is_refused_in_a_line(tmp_path, content):
    (tmp_path / "tokenizer_config.json").write_text(content)
    with pytest.raises(UsageError, match="is damaged or another program's .*; give the vocabulary's own file"):
        load_tokenizer(tmp_path)


def test_published_vocabularies_are_read(reference):
    """With the odd pieces that they have: U+2028 in the Chinese one."""
    for name, size in (("chinese", 21_128), ("multilingual-cased", 119_547)):
        packed = reference / "data" / "bert" / f"vocab-{name}.txt.gz"
        lines = gzip.decompress(packed.read_bytes()).decode().removesuffix("\n").split("\n")
        assert len(Vocabulary(lines)) == size
    for name, size in (("cased", 28_996), ("uncased", 30_522)):
        assert len(Vocabulary.read(reference / "reference" / f"vocab-{name}.txt")) == size
