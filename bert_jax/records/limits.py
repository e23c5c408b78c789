"""Limits on what is read from foreign files, in one table: they bound the memory that any file can take."""

FREE_BYTES = 1 << 26
"""Decompressed bytes that are always allowed, whatever the size of the file."""
EXPANSION = 200
"""Highest ratio of decompressed to compressed bytes, beyond FREE_BYTES of content.

Text compresses 3 to 10 times and one repeated line about 100 times; a decompression bomb reaches 1,000 times (gzip) or
30,000 times (Zstandard)."""
WINDOW_BYTES = 1 << 27
"""Largest window of a Zstandard frame: the default limit of the `zstd` program."""
LINE_BYTES = 1 << 20
"""Bytes of the longest line of a corpus; longer lines are cut at a space."""
RECORD_BYTES = 1 << 25
"""Bytes of the longest record of any format: a record is in memory as a whole."""
RECORD_VALUES = 2_000_000
"""Most commas and brackets of a JSON record: each may stand for a value that takes up to 100 bytes of memory."""
COLUMNS = 100_000
"""Most separators in a line of a table: each field takes about a hundred bytes of memory."""
SENTENCE_WORDS = 100_000
"""Most words of a CoNLL sentence: a file without blank lines is a single sentence."""
SQUAD_BYTES, SQUAD_VALUES = 1 << 27, 5_000_000
"""Largest SQuAD file, in bytes and in JSON values. The file is read whole and takes up to four times its size in
memory.

The training file of SQuAD 2.0 has 42 MB and a million values."""
TEXT_CHARACTERS = 1_000_000
"""Characters of the longest text in a task's row: its pieces take about 200 bytes of memory for each character."""
UNDECODABLE, FEWEST_UNDECODABLE = 0.1, 10
"""Highest share of a corpus's lines that aren't UTF-8. It applies from FEWEST_UNDECODABLE such lines on. Above it, the
text probably has another encoding, and a model would learn U+FFFD."""
