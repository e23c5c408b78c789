from hypothesis import given
from hypothesis import strategies as st

from bert_jax.instances.chunks import cut_chunks

DOCUMENTS = st.lists(st.lists(st.text("ab é", min_size=1, max_size=30), min_size=1, max_size=6), max_size=30)


@given(DOCUMENTS, st.integers(20, 200))
def test_chunks_hold_all_documents_in_order_and_are_not_too_large(documents, limit):
    chunks = list(cut_chunks([(0, documents)], limit))
    assert [chunk.index for chunk in chunks] == list(range(len(chunks)))
    assert [document for chunk in chunks for document in chunk.documents] == documents
    longest = max((len("\n".join(document).encode()) for document in documents), default=0)
    for chunk in chunks:
        assert limit <= chunk.size < 1.5 * limit + longest + 2 or len(chunks) == 1 or chunk is chunks[-1]


def test_the_checksum_is_that_of_the_text():
    of = lambda *documents: list(cut_chunks([(0, documents)], 100))[0].crc32
    assert of(["a", "b"]) == of(["a", "b"])
    assert len({of(["a", "b"]), of(["a", "c"]), of(["a"], ["b"]), of(["a b"])}) == 4


@given(st.lists(DOCUMENTS, max_size=4), st.integers(20, 200))
def test_no_chunk_spans_two_portions_and_each_is_cut_as_if_it_were_alone(portions, limit):
    chunks = list(cut_chunks(enumerate(portions), limit))
    assert [chunk.index for chunk in chunks] == list(range(len(chunks)))
    for number, documents in enumerate(portions):
        own = [chunk for chunk in chunks if chunk.source == number]
        assert [chunk.documents for chunk in own] == [chunk.documents for chunk in cut_chunks([(0, documents)], limit)]
