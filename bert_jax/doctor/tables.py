"""Tables of a diagnosis."""

from collections.abc import Sequence

from bert_jax.doctor.diagnosis import Change, Diagnosis
from bert_jax.system.facts import facts_table, rows_table
from bert_jax.system.progress import output, print_line

_SHARES_SHOWN = 8
_LEAST_SHOWN = 0.0005


def print_diagnosis(found: Diagnosis, changes: Sequence[Change]) -> None:
    """Prints the tables of a diagnosis, and a line for each change."""
    output.print(facts_table("The text, estimated from the sample", {"": found.text}))
    for title, shares in (("Languages", found.languages), ("Scripts", found.scripts)):
        shown = [share for share in shares if share.share >= _LEAST_SHOWN][:_SHARES_SHOWN]
        output.print(rows_table(title, shown))
    if found.faults:
        output.print(rows_table("Faults in the sample", found.faults))
    output.print(
        rows_table("Sequences of the whole text", found.cuts),
        rows_table("Vocabularies, on the sample", found.pieces),
        facts_table("Preparation, from rates measured on the sample", {"": found.preparation}),
        facts_table("The config's training", {"": found.training}),
        rows_table("Its time", found.hours),
        sep="\n",
    )
    print_line("What to change" if changes else "Nothing to change was found.")
    for change in changes:
        print_line(f"- {change.reason}: {change.change}")
