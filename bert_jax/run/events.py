"""Opens the journal of a run: events.jsonl in its directory."""

from bert_jax.system.bucket import Place, in_bucket
from bert_jax.system.copies import fetched, worked_on
from bert_jax.system.journal import FILE_NAME, open_journal


def open_events(run: Place) -> None:
    """Has what befalls the run from now on added to its journal.

    A journal in a bucket is continued in a local copy, which MetricsLog uploads with the metrics. The copy of an
    earlier run at the same place is deleted.
    """
    journal = run / FILE_NAME
    if in_bucket(journal):
        if journal.exists():
            fetched(journal)
        else:
            worked_on(journal).unlink(missing_ok=True)
    open_journal(worked_on(journal))
