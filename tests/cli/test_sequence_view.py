"""How sentences with a masked word are cut, and broken into lines."""

import pytest
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table

from bert_jax.cli.sequence_view import MaskedText, around_mask, folded

CHINESE = "他是" * 40 + "[MASK]" + "中国" * 10 + "。"


@pytest.mark.parametrize(
    ("text", "most", "cut"),
    [
        ("The [MASK] is here.", 80, "The [MASK] is here."),
        ("a" * 20 + " [MASK] end", 20, "aaaaaa [MASK] end".rjust(20, ".")),
        ("begin [MASK] " + "a" * 20, 20, "begin [MASK] aaaa..."),
        ("a" * 20 + "[MASK]" + "b" * 20, 26, "...aaaaaaa[MASK]bbbbbbb..."),
        (CHINESE, 60, "..." + "他是" * 6 + "[MASK]" + "中国" * 6 + "..."),
        ("中[MASK]", 60, "中[MASK]"),
    ],
)
def test_a_long_sentence_is_cut_around_its_mask_by_what_it_takes_on_a_terminal(text, most, cut):
    assert cell_len(around_mask(text, most)) <= most
    assert around_mask(text, most) == cut


def test_a_table_shows_the_mask_of_a_chinese_sentence():
    table, console = Table(), Console(width=40)
    table.add_column("sentence", ratio=3)
    table.add_column("other", ratio=2)
    for before in range(1, 15):
        table.add_row(MaskedText("他" * before + "[MASK]" + "是" * 20), "x")
    with console.capture() as shown:
        console.print(table)
    assert shown.get().count("[MASK]") == 14 and "] " not in shown.get().replace("] │", "")


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("The old [MASK], sees", ["The old", "[MASK],", "sees"]),
        ("雪[MASK]雪雪", ["雪[MASK]雪", "雪"]),
        ("雪雪雪[MASK]雪雪", ["雪雪雪", "[MASK]雪雪"]),
        ("abcdefghijklmn o", ["abcdefghij", "klmn o"]),
    ],
)
def test_lines_are_broken_at_spaces_and_beside_characters_that_set_none(text, lines):
    assert folded(text, 10) == lines
