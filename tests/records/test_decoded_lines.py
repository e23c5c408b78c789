import bz2
import gzip
import io
import lzma
import sqlite3
import tarfile
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import zstandard

from bert_jax.config.data import DataConfig
from bert_jax.records import limits
from bert_jax.records.corpus import open_corpus
from bert_jax.system.errors import UsageError

TEXT = "First line.\nSecond line.\n\n\nAnother document.\n"
DOCUMENTS = [["First line.", "Second line."], ["Another document."]]


def read(pattern, **settings):
    corpus = open_corpus(DataConfig(source=f"text:{pattern}", **settings))
    return list(corpus.documents()), corpus


@pytest.mark.parametrize(
    "name, pack",
    [
        ("a.txt", lambda text: text),
        ("a.txt.gz", gzip.compress),
        ("a.txt.zst", zstandard.ZstdCompressor().compress),
        ("gzip", gzip.compress),
        ("zstd.gz", zstandard.compress),
        ("text.gz", lambda text: text),
        ("two.gz", lambda text: gzip.compress(text[:20]) + gzip.compress(text[20:])),
        ("two.zst", lambda text: zstandard.compress(text[:20]) + zstandard.compress(text[20:])),
        ("bom.txt", lambda text: b"\xef\xbb\xbf" + text),
        ("windows.txt", lambda text: text.replace(b"\n", b"\r\n")),
        ("no-end.txt", lambda text: text.rstrip(b"\n")),
    ],
)
def test_every_format_gives_the_same_documents(tmp_path, name, pack):
    (tmp_path / name).write_bytes(pack(TEXT.encode()))
    documents, corpus = read(tmp_path / name)
    assert documents == DOCUMENTS
    assert corpus.position == corpus.total == (tmp_path / name).stat().st_size / 1e6


def test_files_come_in_the_order_of_their_names_and_end_documents(tmp_path):
    for name in ("b", "a"):
        (tmp_path / f"{name}.txt").write_text(f"of {name}")
    assert read(tmp_path / "*.txt")[0] == [["of a"], ["of b"]]


def test_undecodable_bytes_are_refused_with_file_and_line(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "LINE_BYTES", 100)
    (tmp_path / "a.txt").write_bytes(b"good and longer than is read at once\n" * 2 + b"word " * 50 + b"\nbad \xff\n")
    with pytest.raises(UsageError, match=r"a\.txt, line 4: byte 5 is not UTF-8"):
        read(tmp_path / "a.txt", undecodable="refuse")


PACKED = {".gz": gzip.compress, ".zst": zstandard.compress}


@pytest.mark.parametrize("suffix, pack", PACKED.items(), ids=PACKED)
@pytest.mark.parametrize("damage", [lambda data: data[:-20], lambda data: data[:40] + b"\xb5\xb5\xb5\xb5" + data[44:]])
def test_a_damaged_file_is_named(tmp_path, suffix, pack, damage):
    lines = "".join(f"line {number} of many different ones {number * 7919}\n" for number in range(5000))
    (tmp_path / f"a{suffix}").write_bytes(damage(pack(lines.encode())))
    with pytest.raises(UsageError, match=rf"a\{suffix} is damaged or cut short after line"):
        read(tmp_path / f"a{suffix}")


@pytest.mark.parametrize("line, space", [("word " * 100, " "), ("雪" * 500, "")])
def test_long_lines_are_cut_at_spaces_or_between_characters_and_counted(tmp_path, monkeypatch, line, space):
    monkeypatch.setattr(limits, "LINE_BYTES", 100)
    (tmp_path / "a.txt").write_text(f"{line}\nshort\n", encoding="utf-8")
    [[*parts, last]], corpus = read(tmp_path / "a.txt")
    assert space.join(parts).split() == line.split() and last == "short"
    assert max(len(part.encode()) for part in parts) <= 100
    assert corpus.repairs == {"over-long lines cut": len(parts) - 1}


def test_a_long_document_is_cut_between_lines_and_counted(tmp_path):
    lines = [f"line number {number:03d}" for number in range(100)]
    (tmp_path / "a.txt").write_text("\n".join(lines) + "\n\nanother\n")
    documents, corpus = read(tmp_path / "a.txt", chunk_megabytes=8 * 300e-6)
    assert [line for document in documents for line in document] == [*lines, "another"] and documents[-1] == ["another"]
    assert max(len("".join(document)) for document in documents) < 320
    assert corpus.repairs["over-long documents cut"] == len(documents) - 2 > 3


TEXT_DE = "".join(f"Die {number} Mädchen hören schöne Lieder.\n\n" for number in range(30))


@pytest.mark.parametrize(
    "content, words",
    [
        (TEXT_DE.encode("utf-16"), "a.txt is UTF-16 text; convert it: iconv -f UTF-16 -t UTF-8"),
        (TEXT_DE.encode("utf-32"), "a.txt is UTF-32 text; convert it: iconv -f UTF-32 -t UTF-8"),
        (TEXT_DE.encode("utf-16-le"), "line 1: byte 2 is NUL, .*UTF-16 without a mark; convert it: iconv -f UTF-16LE"),
        (("\n" + TEXT_DE).encode("utf-16-be"), "line 1: byte 1 is NUL, which text doesn't have: .* iconv -f UTF-16BE"),
        (b"\x7fELF\x01\n\x00\x00", "a.txt, line 2: byte 1 is NUL, .*: the file is not text; leave it out"),
        (TEXT_DE.encode("latin-1"), "a.txt: 30 of 30 lines with text read so far are not UTF-8, .* iconv"),
        (TEXT_DE.encode() * 9 + TEXT_DE.encode("latin-1") * 40, "a.txt: 1,000 of 1,270 lines with text"),
        # The encoding that is guessed is one of the text's language.
        ("下雪了。\n".encode("gb18030") * 20, "for example by iconv -f GB18030 -t UTF-8 OLD > NEW"),
    ],
)
def test_what_is_no_utf_8_text_is_refused_with_a_remedy(tmp_path, content, words):
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(UsageError, match=words):
        read(tmp_path / "a.txt", language="zh" if "GB18030" in words else "en")


def test_a_little_that_is_not_utf_8_is_replaced_and_counted(tmp_path):
    (tmp_path / "a.txt").write_bytes(TEXT_DE.encode() * 20 + TEXT_DE.encode("latin-1"))
    documents, corpus = read(tmp_path / "a.txt")
    assert len(documents) == 630 and corpus.repairs == {"lines with undecodable bytes": 30}


def test_a_large_window_is_refused(tmp_path):
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=28)
    compressed = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    (tmp_path / "b.zst").write_bytes(compressed.compress(b"text\n") + compressed.flush())
    with pytest.raises(UsageError, match="b.zst is damaged .*memory"):
        read(tmp_path / "b.zst")


WIKI = """<doc id="10" url="https://example.org/wiki?curid=10" title="Cats &amp; dogs">
Cats &amp; dogs

Cats sleep.

Dogs bark.

</doc>
<doc id="11" revid="7" url="https://example.org/wiki?curid=11" title="The "old" river">
The "old" river
The river is old.
</doc>
"""


def test_the_doc_lines_of_wikiextractor_are_boundaries_and_headers_and_titles_are_not_text(tmp_path):
    (tmp_path / "wiki_00").write_text(WIKI)
    documents, corpus = read(tmp_path / "wiki_00")
    assert documents == [["Cats sleep.", "Dogs bark."], ["The river is old."]]
    assert corpus.repairs == {"<doc> headers left out, with titles": 2}


def test_doc_lines_elsewhere_are_text(tmp_path):
    (tmp_path / "a.txt").write_text("The <doc> tag:\n</doc>\n<doc>\n")
    documents, corpus = read(tmp_path / "a.txt")
    assert documents == [["The <doc> tag:", "</doc>", "<doc>"]] and not corpus.repairs


def zipped(**files):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in files.items():
            # This time is written with a line feed: byte 11 of the archive.
            archive.writestr(zipfile.ZipInfo(name, (2026, 1, 2, 3, 8, 20)), text)
    return content.getvalue()


def tarred():
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:gz") as archive:
        archive.addfile(tarfile.TarInfo("a.txt"))
    return content.getvalue()


def parquet():
    content = io.BytesIO()
    pyarrow.parquet.write_table(pa.table({"text": ["a"]}), content)
    return content.getvalue()


def array():
    content = io.BytesIO()
    np.save(content, np.zeros(3))
    return content.getvalue()


def database():
    connection = sqlite3.connect(":memory:")
    connection.execute("create table texts (text)")
    return connection.serialize()


@pytest.mark.parametrize(
    "content, words",
    [
        (b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n", "a PDF document; take its text out, as by pdftotext"),
        (zipped(**{"a.txt": "text"}), "a zip archive; unpack it"),
        (zipped(**{"[Content_Types].xml": "", "word/document.xml": ""}), "a document .docx"),
        (zipped(**{"mimetype": "application/epub+zip"}), "a document .docx, odt, epub"),
        (b"7z\xbc\xaf\x27\x1c\0\4", "a 7z or RAR archive"),
        (bz2.compress(b"text"), "compressed by bzip2; unpack it: bzip2 -d FILE"),
        (lzma.compress(b"text"), "compressed by xz"),
        (tarred(), "a tar archive"),
        (parquet(), "a Parquet file; rename it to end with .parquet"),
        (array(), "a database or an array"),
        (database(), "a database or an array"),
        (b"{\\rtf1\\ansi text}", "an Office document"),
    ],
    ids="pdf zip docx epub 7z bz2 xz tar parquet npy sqlite rtf".split(),
)
@pytest.mark.parametrize("prefix", ["text:", ""])
def test_a_file_that_is_no_text_is_named(tmp_path, content, words, prefix):
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises(UsageError, match=f"a.txt is no text but {words}"):
        list(open_corpus(DataConfig(source=f"{prefix}{tmp_path}/a.txt")).documents())


def test_a_line_of_many_titles_is_read_at_once(tmp_path):
    """A pattern with three free parts would take minutes."""
    line = '<doc id="' + '" url="" title="' * 5000
    (tmp_path / "a.txt").write_text(f"{line}\n")
    documents, _ = read(tmp_path / "a.txt")
    assert documents == [[line]]


def test_a_file_whose_name_is_a_pattern_is_read_alone(tmp_path):
    (tmp_path / "a[1].txt").write_text("The first.\n")
    (tmp_path / "a1.txt").write_text("The second.\n")
    assert read(tmp_path / "a[1].txt")[0] == [["The first."]]
    assert len(read(f"{tmp_path}/a*.txt")[0]) == 2
