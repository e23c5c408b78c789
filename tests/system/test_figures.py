"""Figures as tables and as JSON."""

import io
import json
import math
import re
from typing import Annotated

from pydantic import computed_field
from rich.console import Console

from bert_jax.system import figures
from bert_jax.system.figures import Figures, Table, figures_table, json_line, markdown, meanings_table, rows_table


class Part(Figures):
    """A record in a field of another."""

    name: str
    size: figures.MemoryBytes
    """Bytes. Of the whole part."""


class Whole(Figures):
    """A record with facts of every form."""

    steps: int
    seconds: Annotated[figures.Milliseconds | None, "step"]
    fits: bool
    mesh: dict[str, int]
    part: Annotated[Part | None, "its part"]

    @computed_field  # type: ignore[prop-decorator]
    @property
    def share(self) -> Annotated[float | None, figures.Unit(figures.percent, unknown="~"), "of all"]:
        """Share of the steps. Of a thousand."""
        return self.steps / 1000 if self.seconds else None


PART = Part(name="[b]", size=3 << 30)
KNOWN = Whole(steps=1234, seconds=0.5, fits=True, mesh={"data": 2, "fsdp": 4}, part=PART)
UNKNOWN = Whole(steps=5, seconds=None, fits=False, mesh={}, part=None)


def printed(table) -> list[list[str]]:
    """The cells of each row."""
    file = io.StringIO()
    Console(file=file, width=120).print(table)
    lines = [line[1:-1].replace("┃", "│") for line in file.getvalue().splitlines() if line[0] in "│┃"]
    return [[cell.strip() for cell in line.split("│")] for line in lines]


def test_rows_have_columns_by_names_with_headings_and_units():
    heading, *rows = printed(rows_table("", [KNOWN, UNKNOWN], ("steps", "seconds", "share")))
    assert heading == ["steps", "step", "of all"]
    assert rows == [["1,234", "500.00 ms", "123%"], ["5", "", "~"]]
    assert ["[b]", "3.00 GiB"] in printed(rows_table("", [KNOWN.part]))
    assert ["3.00 GiB"] in printed(rows_table("", [KNOWN], ["part.size"]))


def test_facts_have_a_column_for_each_record_and_rows_for_the_records_in_it():
    rows = printed(figures_table("", {"one": KNOWN, "[bold]no": UNKNOWN}))
    for row in (
        ["", "one", "[bold]no"],
        ["fits", "yes", "no"],
        ["mesh", "data 2 x fsdp 4", ""],
        ["its part", "", ""],
        ["size", "3.00 GiB", ""],
        ["of all", "123%", "~"],
    ):
        assert row in rows


def test_a_fact_is_shown_with_its_meaning_if_it_is_known():
    rows = printed(meanings_table("", UNKNOWN, ("steps", "seconds")))
    assert ["steps", "5", ""] in rows and not [row for row in rows if row[0] == "step"]
    assert ["of all", "123%", "Share of the steps"] in printed(meanings_table("", KNOWN, ("share",)))


def test_json_has_all_facts_and_computed_ones_and_no_number_that_json_lacks():
    found = json.loads(json_line({"all": [KNOWN], "mean": math.nan, "some": [1.5, math.inf]}))
    assert found["mean"] is None and found["some"] == [1.5, None]
    assert found["all"][0]["part"] == {"name": "[b]", "size": 3 << 30} and found["all"][0]["share"] == 1.234


def test_a_long_path_is_not_cut_off():
    output = Console(width=30, file=io.StringIO())
    table = Table("", "source", ">size")
    table.add_row("text:/data/of/many/folders/english.txt.gz", "1,234")
    output.print(table)
    assert "lish.txt.gz" in re.sub(r"[\s│┃]|1,234", "", output.file.getvalue())


def test_a_bar_in_a_cell_makes_no_column():
    assert markdown([{"model": "a|b", ">score": "1"}]) == "| model | score |\n| --- | ---: |\n| a\\|b | 1 |\n"
