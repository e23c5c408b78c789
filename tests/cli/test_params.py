import re

import pytest


@pytest.fixture
def shown(done):
    """The cells right of each row's name, in order; lines outside the tables under ""."""

    def rows_of(config, *flags) -> dict[str, list[list[str]]]:
        rows: dict[str, list[list[str]]] = {"": []}
        for line in done("params", config, *flags).out.splitlines():
            cells = [cell.strip() for cell in line.strip("│ ").split("│")]
            rows.setdefault(cells[0] if len(cells) > 1 else "", []).append(cells[1:] or cells)
        return rows

    return rows_of


def number(text: str) -> int:
    return int(text.replace(",", ""))


def test_base_has_the_counts_that_notes_list(shown):
    rows = shown("base")
    last = {name: number(cells[0][-1]) for name, cells in rows.items() if re.fullmatch(r"[\d,]+", cells[0][-1])}
    assert last["word table"] == 30_522 * 768 and last["position table"] == 512 * 768
    assert last["embeddings"] == 23_837_184 and last["pooler"] == 590_592
    assert last["total without heads"] == 109_482_240 and last["total with heads"] == 110_106_428
    assert rows["12 blocks"] == [["", "7,087,872", "85,054,464"]]
    assert rows["query, key, value"] == [["[768,3,12,64] + [3,12,64]", "1,771,776", "21,261,312"]]
    assert rows["feed-forward in"] == [["[768,3072] + [3072]", "2,362,368", "28,348,416"]]
    assert len(rows["LayerNorm"]) == 3 and rows["MLM output"] == [["the word table, shared"]]


def test_blocks_that_share_their_parameters_are_counted_once(shown):
    [[_, of_one, of_all]] = shown("albert_base")["12 blocks (shared)"]
    assert of_one == of_all == "7,087,872"


@pytest.mark.parametrize("config", ["base", "large", "demo", "modern_small"])
def test_rows_add_up_to_the_totals(shown, config):
    rows = shown(config)
    totals = {name: number(cells[0][-1]) for name, cells in rows.items() if "total" in name}
    further = ("embeddings", "pooler", "pooler LayerNorm")
    subtotals = [name for name in rows if name in further or "blocks" in name]
    parts = {
        name: sum(number(cells[-1]) for cells in lines)
        for name, lines in rows.items()
        if lines[0][0].startswith("[") and len(lines[0]) == 3
    }
    assert totals["total with heads"] == sum(parts.values())
    of_heads = sum(count for name, count in parts.items() if name.startswith(("MLM", "NSP", "pair")))
    assert totals["total without heads"] == sum(parts.values()) - of_heads
    assert totals["total without heads"] == sum(number(rows[name][0][-1]) for name in subtotals)


@pytest.mark.parametrize(
    "config, name", [("base", "NSP dense"), ("albert_base", "SOP dense"), ("modern_base", "pair dense, not trained")]
)
def test_the_head_for_pairs_is_named_by_what_it_answers(shown, config, name):
    rows = shown(config)
    assert [row for row in rows if "NSP" in row or "SOP" in row or "pair" in row] == [name]


def test_padding_memory_and_flops_are_told(shown):
    rows = shown("base", "--optimizer.name", "lamb")
    told = " ".join(line for (line,) in rows[""])
    assert "70 rows, 53,830 zeros" in told
    megabytes = 4 * (110_106_428 + 53_830) / 1e6
    assert f"Parameters {megabytes:.2f} MB, state of lamb {2 * megabytes:.2f} MB" in told
    [length, _, forward, trained, whole] = rows["1"][0]
    assert float(trained) == pytest.approx(3 * float(forward), rel=1e-3)
    assert float(whole) == pytest.approx(float(trained) * 256 * 900_000, rel=1e-3)
    assert length == "128" and rows["2"][0][:2] == ["512", "77"]


def test_flags_and_a_vocabulary_file_are_counted(shown, refused, tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdef"]) + "\n")
    rows = shown("tiny", "--vocabulary.file", tmp_path / "vocab.txt", "--model.positions", "sinusoidal")
    assert rows["word table"] == [["[11,128]", "", "1,408"]]
    assert "position table" not in rows and rows["embeddings"][0][-1] == f"{(11 + 2 + 2) * 128:,}"
    assert shown("tiny", "--model.vocabulary-size", "300")["word table"][0][0] == "[300,128]"
    assert "absent.txt" in refused("params", "tiny", "--vocabulary.file", tmp_path / "absent.txt")
