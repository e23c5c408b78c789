"""Opens the journal of a run: events.jsonl in its directory."""

from bert_jax.system.bucket import Place, in_bucket
from bert_jax.system.copies import fetched, worked_on
from bert_jax.system.journal import FILE_NAME, open_journal


def open_events(run: Place) -> None:
    """Opens the run's journal: events are appended to it from now on.

    The journal of a run in a bucket is downloaded, appended to here, and uploaded by MetricsLog with the metrics. A
    local copy left by another run at the same place is deleted.
    """
    journal = run / FILE_NAME
    if in_bucket(journal):
        if journal.exists():
            fetched(journal)
        else:
            worked_on(journal).unlink(missing_ok=True)
    open_journal(worked_on(journal))
