"""The pages in a real browser: nothing fails, nothing is requested, nobody is shut out."""

import base64
import os
import shutil
from pathlib import Path

import numpy as np
import pytest

from bert_jax.products.page.charts import line_chart
from bert_jax.products.page.page import Section, element, page
from bert_jax.products.report.model_views import Attention, ModelViews
from bert_jax.products.report.report import run_sections, write_report
from bert_jax.products.report.run_summary import RunSummary
from bert_jax.run.curves import Curve

pytestmark = pytest.mark.long

NAMES = "chromium", "chromium-browser", "google-chrome"
BROWSER = Path(next(filter(None, map(shutil.which, NAMES)), "/usr/bin/chromium"))
SWITCHES = "--no-sandbox --disable-gpu --disable-background-networking --no-first-run".split()
MOST_BYTES = 3_000_000
SIZES = {"desktop": (1280, 900), "phone": (390, 844)}


@pytest.fixture(scope="session")
def browser():
    """Chromium without a window."""
    if not BROWSER.exists() and os.environ.get("CI") != "true":
        pytest.skip(f"there is no browser: none of {', '.join(NAMES)} is on PATH")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=BROWSER, args=SWITCHES)
        yield started
        started.close()


@pytest.fixture(scope="session")
def pages(tmp_path_factory, tiny_run, packed_copy, hostile_run) -> dict[str, Path]:
    """Reports by what they are about."""
    folder = tmp_path_factory.mktemp("pages")
    runs = {
        "one": [tiny_run.path],
        "hostile": [hostile_run],
        "compared": [tiny_run.path, packed_copy, hostile_run],
    }
    for name, paths in runs.items():
        write_report(folder / f"{name}.html", paths)
    return {name: folder / f"{name}.html" for name in runs}


def opened(browser, file: Path, size: str, scheme: str):
    """The page once its charts are drawn, and what went wrong meanwhile."""
    width, height = SIZES[size]
    page, faults = browser.new_page(viewport={"width": width, "height": height}, color_scheme=scheme), []
    page.on("console", lambda message: faults.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("dialog", lambda dialog: faults.append(f"dialog: {dialog.message}"))
    page.on("request", lambda request: request.url == file.as_uri() or faults.append(request.url))
    page.goto(file.as_uri())
    page.wait_for_selector("html[data-drawn]", state="attached")  # its policy forbids functions given as text
    return page, faults


@pytest.mark.parametrize("name", ["one", "hostile", "compared"])
@pytest.mark.parametrize(("size", "scheme"), [("desktop", "light"), ("phone", "dark")])
def test_a_page_opens_without_a_fault_or_a_request_and_is_accessible(browser, pages, name, size, scheme):
    from axe_playwright_python.sync_playwright import Axe

    shown, faults = opened(browser, pages[name], size, scheme)
    assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")
    serious = [
        (found["id"], found["nodes"][0]["html"])
        for found in Axe().run(shown).response["violations"]
        if found["impact"] in ("serious", "critical")
    ]
    assert not serious and not faults
    assert shown.locator(".chart svg").count() == shown.locator(".chart").count() > 0
    assert shown.locator(".chart path").count() and shown.locator("figure details table").count()
    assert not shown.locator("main img, main script:not([type])").count()
    assert pages[name].stat().st_size < MOST_BYTES
    shown.close()


def test_layer_and_head_choose_the_attention_that_is_shown(browser, tiny_run, tmp_path):
    weights = np.random.default_rng(0).dirichlet(np.ones(3), (2, 2, 3))  # [L, H, T, T]
    packed = base64.b64encode(np.rint(weights * 255).astype(np.uint8).tobytes()).decode()
    views = ModelViews(attention=Attention(["[CLS]", "word", "[SEP]"], layers=2, heads=2, weights=packed))
    file = tmp_path / "page.html"
    file.write_text(page("attention", element("header"), run_sections(RunSummary(tiny_run.path), views)))
    shown, faults = opened(browser, file, "desktop", "light")
    for layer, head, expected in (
        (0, 0, weights[0].mean(0)),
        (1, 0, weights[1].mean(0)),
        (1, 1, weights[1, 0]),
        (0, 2, weights[0, 1]),
    ):
        shown.select_option("#attention-layer", index=layer)
        shown.select_option("#attention-head", index=head)  # the first is the mean
        cells = shown.locator("#attention-table tbody td").evaluate_all("cells => cells.map(cell => cell.title)")
        assert cells[1].startswith("[CLS] → word: ")
        found = [float(title.rpartition(": ")[2].rstrip("%")) / 100 for title in cells]
        assert np.abs(np.reshape(found, (3, 3)) - expected).max() < 0.005
    assert not faults
    shown.close()


def test_charts_follow_the_colours_of_the_system(browser, pages):
    shown, faults = opened(browser, pages["one"], "desktop", "light")
    light = shown.locator(".chart text").first.get_attribute("fill")
    shown.emulate_media(color_scheme="dark")
    shown.wait_for_selector(f".chart text[fill='{light}']", state="detached")
    assert not faults
    shown.close()


@pytest.mark.parametrize("size", SIZES)
def test_a_legend_has_the_whole_names_that_fit_into_the_window(browser, tmp_path, size):
    section, curve = Section("learning", "Curves"), Curve(np.array([1, 2]), np.array([0.5, 0.7]))
    names = [f"a_model_with_a_long_name 0.0003 10 #{seed}" for seed in range(5)]
    section.add_charts(line_chart("score", dict.fromkeys(names, curve), unit="score", points=10))
    (tmp_path / "long.html").write_text(page("long", element("header"), [section]))
    shown, faults = opened(browser, tmp_path / "long.html", size, "light")
    assert {*names} <= {*shown.locator(".chart text").all_text_contents()}
    assert shown.evaluate("document.documentElement.scrollWidth <= window.innerWidth") and not faults
    shown.close()
