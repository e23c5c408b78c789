"""The HTML of a report: one file with its scripts and styles, whose policy forbids every request."""

import base64
import contextlib
import hashlib
import html
import json
from collections.abc import Iterable, Sequence
from functools import cache
from importlib.metadata import version
from importlib.resources import files

from bert_jax.products.page.charts import Chart
from bert_jax.system.copies import cache_directory
from bert_jax.system.errors import RunError, check_installed, printable
from bert_jax.system.files import write_text

_MOST_CELL = 1000
"""Characters of a cell or sentence; the rest is left out."""


class Markup(str):
    """Text that is HTML already. Every other text is escaped."""


class Section:
    """A part of the page with a heading, and its charts."""

    def __init__(self, anchor: str, title: str, *parts: Markup):
        """`anchor`: its id in the page, unique there."""
        self.anchor, self.title = anchor, title
        self.charts: dict[str, Chart] = {}
        """The charts, by the id of their element."""
        self._parts = [*parts]

    def __bool__(self) -> bool:
        return bool(self._parts)

    def add(self, *parts: Markup) -> None:
        self._parts += parts

    def add_charts(self, *charts: Chart | None) -> None:
        """Adds the charts that aren't None, side by side if the window is wide, each with its table."""
        figures = []
        for chart in charts:
            if chart:
                anchor = f"{self.anchor}-chart-{len(self.charts) + 1}"
                self.charts[anchor] = chart
                figures.append(_figure(anchor, chart))
        if figures:
            self.add(element("div", *figures, {"class": "charts"}))

    @property
    def markup(self) -> Markup:
        heading = element("h2", self.title, {"id": f"{self.anchor}-title"})
        named = {"id": self.anchor, "aria-labelledby": f"{self.anchor}-title"}
        return element("section", heading, *self._parts, named)


def escaped(value: object) -> Markup:
    """`value` as escaped text, with control characters visible and cut if it is long; Markup stays as it is."""
    if isinstance(value, Markup):
        return value
    text = str(value)
    text = text if len(text) <= _MOST_CELL else f"{text[:_MOST_CELL]}…"
    return Markup(html.escape(printable(text)))


def element(name: str, *content: object) -> Markup:
    """An HTML element; a dict in `content` has its attributes."""
    attributes = "".join(
        f' {key}="{escaped(value)}"' for each in content if isinstance(each, dict) for key, value in each.items()
    )
    inside = "".join(escaped(each) for each in content if not isinstance(each, dict))
    return Markup(f"<{name}{attributes}>{inside}</{name}>")


def paragraph(*content: object) -> Markup:
    """A paragraph of texts, which are escaped, and of markup."""
    return element("p", *content)


def table(caption: str, headings: Sequence[str], rows: Iterable[Sequence[object]], numbers: bool = True) -> Markup:
    """A table that scrolls by itself if it is wide; the first cell of a row is its heading.

    `numbers`: whether the other cells are figures, which are aligned to the right.
    """
    head = element(
        "tr", *(element("th", heading, {"scope": "col"}) if heading else element("td") for heading in headings)
    )
    lines = [
        element(
            "tr",
            element("th", row[0], {"scope": "row", "dir": "auto"}),
            *(
                cell if str(cell).startswith("<td") else element("td", cell, {"dir": "auto"})
                for cell in map(escaped, row[1:])
            ),
        )
        for row in rows
    ]
    inside = (element("caption", caption), element("thead", head), element("tbody", *lines))
    whole = element("table", *inside, {"class": "figures" if numbers else "texts"})
    return element("div", whole, {"class": "scroll", "tabindex": "0", "role": "region", "aria-label": caption})


def remarks(said: Iterable[tuple[str, str]]) -> Markup:
    """Remarks as a list, each a kind (good, note or problem) and a text."""
    lines = [
        element("li", {"class": kind}, element("strong", kind.capitalize()), Markup(" "), element("span", text))
        for kind, text in said
    ]
    return element("ul", {"class": "verdict"}, *lines)


def _figure(anchor: str, chart: Chart) -> Markup:
    drawing = element("div", {"id": anchor, "class": "chart", "role": "img", "aria-label": chart.description})
    figures = element(
        "details", element("summary", f"Figures of {chart.title}"), table(chart.title, chart.headings, chart.rows)
    )
    return element("figure", element("figcaption", chart.title), drawing, figures)


def page(title: str, header: Markup, sections: Sequence[Section]) -> str:
    """The HTML of a page with all that it needs: styles, scripts and the data of the charts."""
    charts = {anchor: chart for section in sections for anchor, chart in section.charts.items()}
    scripts = [vega_bundle(), _file("page.js")] if charts else [_file("page.js")]
    links = [element("a", section.title, {"href": f"#{section.anchor}"}) for section in sections]
    drawn = {
        anchor: {"spec": chart.spec, "series": chart.series, "palette": chart.palette, "label": chart.title}
        for anchor, chart in charts.items()
    }
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(scripts)}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="color-scheme" content="light dark">\n<link rel="icon" href="data:,">\n'
        f"<title>{escaped(title)}</title>\n<style>{_file('page.css')}</style>\n</head>\n<body>\n"
        f'<a class="skip" href="#main">Skip to the report</a>\n{header}\n'
        f"{element('nav', *links, {'aria-label': 'Sections'})}\n"
        f"{element('main', *(section.markup for section in sections), {'id': 'main'})}\n"
        f"{element('footer', paragraph('Written by bert-jax report. This file needs no network and sends nothing.'))}\n"
        f"{data_block('charts', drawn)}\n"
        + "\n".join(f"<script>{script}</script>" for script in scripts)
        + "\n</body>\n</html>\n"
    )


def data_block(anchor: str, value: object) -> Markup:
    """JSON for the page's script: in HTML it can't end the element that holds it, whatever its texts are."""
    text = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return Markup(f'<script type="application/json" id="{anchor}">{text.replace("<", chr(92) + "u003c")}</script>')


def check_can_draw() -> None:
    """Raises UsageError if vl-convert, which has the program that draws the charts, isn't installed."""
    check_installed("a report needs vl-convert-python", "vl_convert", "report")


@cache
def vega_bundle() -> str:
    """Vega, Vega-Lite and vega-embed as one script. Raises UsageError if vl-convert isn't installed.

    vl-convert takes up to two seconds to join them, so the script is kept in the cache folder.
    """
    check_can_draw()
    kept = cache_directory() / "vega" / f"{version('vl-convert-python')}.js"
    try:
        bundle = kept.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        import vl_convert

        bundle = vl_convert.javascript_bundle()  # type: ignore[call-arg]  # the stub lacks its default
        with contextlib.suppress(OSError, RunError):  # another process writes it, or it is joined again next time
            kept.parent.mkdir(parents=True, exist_ok=True)
            write_text(kept, bundle)
    return bundle.replace("</script", "<\\/script")


@cache
def _file(name: str) -> str:
    return files("bert_jax.products.page").joinpath(name).read_text(encoding="utf-8")


def _policy(scripts: Sequence[str]) -> str:
    """Allows these scripts alone, styles within the page, and no request."""
    hashes = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{each}'" for each in hashes)
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'"
