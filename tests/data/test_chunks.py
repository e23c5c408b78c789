from hypothesis import given, strategies as st

from bert_jax.data.chunks import cut_chunks

DOCUMENTS = st.lists(st.lists(st.text("ab é", min_size=1, max_size=30), min_size=1, max_size=6), max_size=30)


@given(DOCUMENTS, st.integers(20, 200))
def test_chunks_hold_all_lines_in_order_and_are_not_too_large(documents, limit):
    chunks = list(cut_chunks(documents, limit))
    assert [chunk.index for chunk in chunks] == list(range(len(chunks)))
    assert [line for chunk in chunks for document in chunk.documents for line in document] == [
        line for document in documents for line in document
    ]
    longest_line = max((len(line.encode()) for document in documents for line in document), default=0)
    for chunk in chunks:
        assert chunk.size < 2.5 * limit + 2 * longest_line
        assert all(chunk.documents)
    for chunk in chunks[:-1]:
        assert chunk.size >= limit


@given(DOCUMENTS)
def test_whole_documents_stay_whole(documents):
    chunks = list(cut_chunks(documents, 10_000))
    assert [document for chunk in chunks for document in chunk.documents] == documents
    assert sum(chunk.documents_cut for chunk in chunks) == 0


def test_a_document_longer_than_a_chunk_is_cut_between_lines_and_counted():
    document = [f"line number {number:03d}" for number in range(100)]
    chunks = list(cut_chunks([document], 300))
    assert len(chunks) > 3
    assert [line for chunk in chunks for part in chunk.documents for line in part] == document
    assert sum(chunk.documents_cut for chunk in chunks) == sum(len(chunk.documents) for chunk in chunks) - 1


def test_the_checksum_is_that_of_the_text():
    one, same, other = (list(cut_chunks([["a", text]], 100))[0].crc32 for text in ("b", "b", "c"))
    assert one == same != other
