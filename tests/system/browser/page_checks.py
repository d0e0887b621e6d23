"""Checks of a page in a browser. They wait until the page is loaded and still."""

import io
import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from axe_playwright_python.base import AXE_SCRIPT
from django.conf import settings
from django.db import connections
from PIL import Image

from tests.factories.engine import drain

LAPTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
VIEWS = [(LAPTOP, "light"), (LAPTOP, "dark"), (PHONE, "dark"), (PHONE, "light")]
IDS = ["laptop-light", "laptop-dark", "phone-dark", "phone-light"]
SCREENSHOTS = Path(settings.BASE_DIR) / "var" / "screenshots"
PICTURES_OF_DOCUMENTS = Path(settings.BASE_DIR) / "docs" / "images"
MAX_PICTURE_BYTES = 150_000

# Loads lazy images now. A broken image never passes, so the wait fails.
PICTURES = """() => [...document.images].every(image => {
    if (image.loading === 'lazy') image.loading = 'eager';
    return image.complete && image.naturalWidth > 0;
})"""
# After two frames, all listeners have received a change of the window or the theme.
TWO_FRAMES = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
REST = f"""() => document.readyState === 'complete' && document.fonts.status === 'loaded'
    && !document.querySelector('.htmx-request') && ({PICTURES})()
    && document.getAnimations().every(each => each.playState !== 'running'
                                              || each.effect.getTiming().iterations === Infinity)"""
THEME = """scheme => matchMedia(`(prefers-color-scheme: ${scheme})`).matches
    && (document.documentElement.dataset.themeMode !== 'auto' || document.documentElement.dataset.theme === scheme)"""
# Without preloading of style sheets, which the policy of the site blocks. Only violations are returned, because the
# list of passed rules is a hundred times longer.
AXE = """() => axe.run({preload: false, resultTypes: ['violations']}).then(found => found.violations
    .filter(fault => ['serious', 'critical'].includes(fault.impact))
    .map(fault => [fault.id, fault.nodes[0].target, fault.nodes[0].failureSummary]))"""


def collect_complaints(page, complaints):
    """Append errors and warnings of the page's console to `complaints`.

    htmx logs an aborted request as an error. A newer request or a new page aborts one, which is no fault.
    """

    def collect(message):
        is_abort = message.text.startswith(("htmx:sendAbort", "htmx:afterRequest"))
        if message.type in {"error", "warning"} and not is_abort:
            complaints.append(message.text)

    page.on("console", collect)
    page.on("pageerror", lambda error: complaints.append(str(error)))


def drain_in_thread(call):
    """Run a drain in another thread until no work is left, because the loop of playwright runs in this thread."""

    def work():
        try:
            return drain(call)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def wait_for_images(page):
    """Wait until all images of the page are loaded, including lazy images."""
    page.wait_for_function(PICTURES)


def settle(page):
    """Wait until the page is loaded, painted and still, and none of its requests is in flight."""
    page.wait_for_load_state("load")
    page.evaluate(TWO_FRAMES)
    page.wait_for_function(REST)


def press_and_wait(page, key):
    """Press a key that opens another page, and wait for that page. The script of the first page must be loaded."""
    page.wait_for_load_state("load")
    with page.expect_navigation():
        page.keyboard.press(key)


def show(page, viewport, scheme):
    """Change the size of the window and the theme of the page."""
    page.set_viewport_size(viewport)
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    page.wait_for_function("width => window.innerWidth === width", arg=viewport["width"])
    page.wait_for_function(THEME, arg=scheme)


def find_serious_faults(page):
    """Return the serious and critical faults that axe finds, as [rule, target, remedy]."""
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(AXE_SCRIPT)
    return page.evaluate(AXE)


def keep_screenshot(page, name):
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{re.sub(r'[^a-z0-9-]+', '-', name.lower())}.png", full_page=True)


def check(page, name, keep="only-on-failure"):
    """Assert that the page has no serious accessibility fault and does not scroll sideways.

    A failure takes a screenshot. `keep` is the option `--screenshot` of pytest: "on" takes one of every page.
    """
    settle(page)
    faults = find_serious_faults(page)
    fits = page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    if keep == "on" or faults or not fits:
        keep_screenshot(page, name)
    assert faults == [], f"{name}: {faults}"
    assert fits, f"{name} scrolls sideways"


def check_views(page, name, keep="only-on-failure"):
    """Check the page at two widths in two themes."""
    for viewport, scheme in VIEWS:
        show(page, viewport, scheme)
        check(page, f"{name}-{viewport['width']}-{scheme}", keep)


def save_picture(page, name):
    """Save what a laptop shows of the page as a picture of the documents: light, few colours, and small."""
    page.emulate_media(color_scheme="light")
    page.set_viewport_size(LAPTOP)
    settle(page)
    with Image.open(io.BytesIO(page.screenshot())) as shot:
        small = shot.convert("RGB").resize((960, 600), Image.Resampling.LANCZOS).quantize(224, dither=Image.Dither.NONE)
    target = PICTURES_OF_DOCUMENTS / f"{name}.png"
    target.parent.mkdir(parents=True, exist_ok=True)
    small.save(target, optimize=True)
    assert target.stat().st_size <= MAX_PICTURE_BYTES


def find_all_faults(page):
    """Return every finding of axe, of any impact."""
    settle(page)
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(AXE_SCRIPT)
    options = {"preload": False, "resultTypes": ["violations"]}
    return page.evaluate(
        """options => axe.run(options).then(found => found.violations
            .map(fault => [fault.id, fault.impact, fault.nodes[0].target, fault.nodes[0].failureSummary]))""",
        options,
    )
