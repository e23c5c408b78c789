"""Files that aren't text are named for what they are, with the remedy."""

import bz2
import io
import lzma
import sqlite3
import tarfile
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from bert_jax.config.data import DataConfig
from bert_jax.records.corpus import open_corpus
from bert_jax.system.errors import UsageError


def zipped(**files):
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
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
        (parquet(), "a Parquet file; name it parquet:FILE#COLUMN"),
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
