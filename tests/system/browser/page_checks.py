"""What a browser shows, seen once it has come to rest: nothing is read once and hoped to be there."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from axe_playwright_python.base import AXE_SCRIPT
from django.conf import settings
from django.db import connections

from tests.factories.engine import drain

LAPTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
VIEWS = [(LAPTOP, "light"), (LAPTOP, "dark"), (PHONE, "dark"), (PHONE, "light")]
IDS = ["laptop-light", "laptop-dark", "phone-dark", "phone-light"]
SCREENSHOTS = Path(settings.BASE_DIR) / "var" / "screenshots"

# A picture that waits until it is scrolled to is asked for now; one that is broken never passes, and the wait says so.
PICTURES = """() => [...document.images].every(image => {
    if (image.loading === 'lazy') image.loading = 'eager';
    return image.complete && image.naturalWidth > 0;
})"""
# Two frames on, a change of the window or of the theme has told all who listen for it.
TWO_FRAMES = "() => new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
REST = f"""() => document.readyState === 'complete' && document.fonts.status === 'loaded'
    && !document.querySelector('.htmx-request') && ({PICTURES})()
    && document.getAnimations().every(each => each.playState !== 'running'
                                              || each.effect.getTiming().iterations === Infinity)"""
THEME = """scheme => matchMedia(`(prefers-color-scheme: ${scheme})`).matches
    && (document.documentElement.dataset.themeMode !== 'auto' || document.documentElement.dataset.theme === scheme)"""
# Without its preloading of sheets, which a page with @import and this policy would complain about. What passes is not
# sent: it is a hundred times as much as what does not.
AXE = """() => axe.run({preload: false, resultTypes: ['violations']}).then(found => found.violations
    .filter(fault => ['serious', 'critical'].includes(fault.impact))
    .map(fault => [fault.id, fault.nodes[0].target, fault.nodes[0].failureSummary]))"""


def drain_beside(call):
    """A drain in a thread of its own, to its end: playwright's loop runs in this one."""

    def work():
        try:
            return drain(call)
        finally:
            connections.close_all()

    with ThreadPoolExecutor(1) as pool:
        return pool.submit(work).result()


def see_pictures(page):
    """Return when each picture of the page is there, those too that would wait until they are scrolled to."""
    page.wait_for_function(PICTURES)


def settle(page):
    """Return when the page is loaded, painted and still, and nothing that it asked for is under way."""
    page.wait_for_load_state("load")
    page.evaluate(TWO_FRAMES)
    page.wait_for_function(REST)


def turn(page, key):
    """Press a key that leads to another page, and wait for that: one pressed before its script is there is nobody's."""
    page.wait_for_load_state("load")
    with page.expect_navigation():
        page.keyboard.press(key)


def show(page, viewport, scheme):
    """The same page in a window of another size and in another theme."""
    page.set_viewport_size(viewport)
    page.emulate_media(color_scheme=scheme, reduced_motion="reduce")
    page.wait_for_function("width => window.innerWidth === width", arg=viewport["width"])
    page.wait_for_function(THEME, arg=scheme)


def serious_faults(page):
    """What axe finds of serious and critical faults: [rule, target, what to do] each."""
    if page.evaluate("typeof axe") == "undefined":
        page.evaluate(AXE_SCRIPT)
    return page.evaluate(AXE)


def keep_screenshot(page, name):
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SCREENSHOTS / f"{re.sub(r'[^a-z0-9-]+', '-', name.lower())}.png", full_page=True)


def check(page, name, keep="only-on-failure"):
    """Refuse serious faults of accessibility and sideways scrolling of what is shown now; a screenshot of what fails.

    `keep` is pytest's `--screenshot`: with "on" there is one of everything.
    """
    settle(page)
    faults = serious_faults(page)
    fits = page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    if keep == "on" or faults or not fits:
        keep_screenshot(page, name)
    assert faults == [], f"{name}: {faults}"
    assert fits, f"{name} scrolls sideways"


def check_views(page, name, keep="only-on-failure"):
    """`check` at two widths in two themes."""
    for viewport, scheme in VIEWS:
        show(page, viewport, scheme)
        check(page, f"{name}-{viewport['width']}-{scheme}", keep)
