"""Finds copies among examined documents: equal ones, and near duplicates by the bands of their signatures."""

from typing import TYPE_CHECKING

import numpy as np
from jaxtyping import UInt64

if TYPE_CHECKING:
    from duckdb import DuckDBPyConnection

LEAST_SIMILARITY = 0.5
"""Least estimated Jaccard similarity of copies."""

_TABLES = """
create temp table pairs (earlier ubigint, document ubigint, similarity double);
create temp view keys as select unnest(bands) as key, place from batches where refusal = 0;
"""
# Pairs that connect all documents of a key: of each document and the first one, and of each and the one before it.
_CANDIDATES = """
create temp table candidates as
select distinct earlier, document
from (
    select unnest([first_value(place) over equal_keys, lag(place) over equal_keys]) as earlier, place as document
    from keys semi join (select key from keys group by key having count(*) > 1) using (key)
    window equal_keys as (partition by key order by place)
)
where earlier < document
"""
_COMPARE = """
insert into pairs
select
    earlier,
    document,
    len(list_filter(ours.signature, lambda number, slot: number = theirs.signature[slot])) / len(ours.signature)
from candidates join batches ours on ours.place = earlier join batches theirs on theirs.place = document
"""
_SIMILAR = f"select earlier, document from pairs where similarity >= {LEAST_SIMILARITY} order by document, earlier"
# A document that is similar to copies alone may be similar to their originals, too.
_OTHER_CANDIDATES = f"""
create or replace temp table candidates as
select original as earlier, pairs.document
from pairs join originals on earlier = originals.document
where similarity >= {LEAST_SIMILARITY} and pairs.document not in (select document from originals)
except select earlier, document from pairs
"""
_COPIES = """
insert into copies
select pairs.document, original, similarity
from originals join pairs on earlier = original and pairs.document = originals.document
"""


def find_copies(database: "DuckDBPyConnection") -> None:
    """Fills the table `copies` with the places of the documents that are copies and of their originals.

    A document is a copy if an earlier one that stays is similar to it; the first of these is its original. Documents
    that a filter refuses don't count. The result doesn't depend on the order of the work. `database` has the examined
    documents as `batches`.
    """
    database.execute(_TABLES)
    database.execute(_CANDIDATES)
    originals: dict[int, int] = {}
    while database.execute("from candidates limit 1").fetchone():
        database.execute(_COMPARE)
        pairs = database.execute(_SIMILAR).fetchnumpy()
        originals = _originals(pairs["earlier"], pairs["document"])
        columns = {"document": [*originals.keys()], "original": [*originals.values()]}
        database.register("originals", {name: np.array(places, np.uint64) for name, places in columns.items()})
        database.execute(_OTHER_CANDIDATES)
    if originals:
        database.execute(_COPIES)


def _originals(earlier: UInt64[np.ndarray, " P"], document: UInt64[np.ndarray, " P"]) -> dict[int, int]:
    """The original of each copy, from all similar pairs in the order of their documents."""
    originals: dict[int, int] = {}
    for first, second in zip(earlier.tolist(), document.tolist(), strict=True):
        if second not in originals and first not in originals:  # all pairs of `first` as the later one are decided
            originals[second] = first
    return originals
