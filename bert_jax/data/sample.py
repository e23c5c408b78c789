"""A uniform sample of a stream whose length nobody knows."""

from collections.abc import Iterable
from hashlib import blake2b


def sample_documents(documents: Iterable[list[str]], limit_bytes: int) -> list[list[str]]:
    """Documents of at most `limit_bytes` UTF-8 bytes together, in their order.

    All of them if they fit; otherwise those whose hash is below a bound that is halved whenever the sample is full.
    The same corpus gives the same sample. Memory: the sample.
    """
    kept: list[tuple[int, int, list[str]]] = []
    total, bound = 0, 2**64
    for document in documents:
        encoded = "\n".join(document).encode()
        order = int.from_bytes(blake2b(encoded, digest_size=8).digest())
        if order >= bound:
            continue
        kept.append((order, len(encoded), document))
        total += len(encoded)
        while total > limit_bytes and len(kept) > 1:
            bound //= 2
            kept = [entry for entry in kept if entry[0] < bound] or kept[:1]
            total = sum(size for _, size, _ in kept)
    return [document for _, _, document in kept]
