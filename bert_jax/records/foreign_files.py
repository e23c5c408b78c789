"""Files that hold no lines of text, known by their first bytes: what they are, and how to get text from them."""

import re

_UNPACK = "unpack it, and give the files of text that it holds"
_SAVE = "save its text as UTF-8 from a program that opens it"
_KINDS = {
    rb"%PDF-": "a PDF document; take its text out, as by pdftotext",
    rb"PK\x03\x04.{26}(?:mimetype|\[Content_Types\]|_rels/|docProps/|word/)": f"a document (docx, odt, epub); {_SAVE}",
    rb"PK(?:\x03\x04|\x05\x06)": f"a zip archive; {_UNPACK}",
    rb"7z\xbc\xaf\x27\x1c|Rar!\x1a": f"a 7z or RAR archive; {_UNPACK}",
    rb".{257}ustar": f"a tar archive; {_UNPACK}",
    rb"BZh[1-9][1\x17]": "compressed by bzip2; unpack it: bzip2 -d FILE",
    rb"\xfd7zXZ\0|LZIP|\x04\x22\x4d\x18|\x1f[\x9d\xa0]": "compressed by xz, lzip, lz4 or compress; unpack it",
    rb"PAR1": "a Parquet file; name it parquet:FILE#COLUMN, or FILE.parquet where rows are read",
    rb"SQLite format 3\0|ARROW1|\x93NUMPY|\x89HDF": "a database or an array; write its texts as JSON lines",
    rb"\xd0\xcf\x11\xe0\xa1\xb1|\{\\rtf": f"an Office document (doc, rtf); {_SAVE}",
}
"""What a file is and what to do, by a pattern of the first bytes."""


def foreign_kind(begin: bytes) -> str | None:
    """What a file with these first bytes is, and what to do with it; None if it may be text."""
    return next((kind for pattern, kind in _KINDS.items() if re.match(pattern, begin, re.DOTALL)), None)
