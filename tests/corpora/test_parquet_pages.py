"""Headers of Parquet's pages, read by our own reader of Thrift's compact protocol."""

import io

import pyarrow as pa
import pyarrow.parquet
import pytest

from bert_jax.corpora.parquet_pages import pages

TEXTS = [f"text number {number} " * (number % 50) for number in range(20_000)]


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("settings", [{}, {"use_dictionary": False}, {"write_statistics": False}])
def test_pages_have_the_sizes_that_an_honest_footer_sums_up(tmp_path, version, settings):
    file = tmp_path / "texts.parquet"
    table = pa.table({"number": range(len(TEXTS)), "text": TEXTS})
    pa.parquet.write_table(
        table,
        file,
        data_page_version=version,
        data_page_size=20_000,
        row_group_size=7_000,
        compression="zstd",
        **settings,
    )
    described = pa.parquet.ParquetFile(file).metadata
    with open(file, "rb") as raw:
        for number in range(described.num_row_groups):
            part = described.row_group(number).column(1)
            begin = part.dictionary_page_offset or part.data_page_offset
            found = list(pages(raw, begin, part.total_compressed_size))
            assert len(found) > 1 and sum(page.compressed for page in found) == part.total_compressed_size
            # The footer sums up the headers as well, which hold the least and the largest text.
            assert 0 <= part.total_uncompressed_size - sum(page.unpacked for page in found) < 2_000 * len(found)


@pytest.mark.parametrize(
    "content", [b"", b"\0" * 99, b"\x15\x00" * 2, b"\x1c" * 100_000, b"\x15" + b"\xff" * 99, b"PAR1"]
)
def test_what_is_no_header_is_refused(content):
    with pytest.raises(ValueError, match="header"):
        list(pages(io.BytesIO(content), 0, 1_000))
