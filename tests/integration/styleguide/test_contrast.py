"""The palette has the contrast of WCAG AA in light and dark mode (https://www.w3.org/TR/WCAG22/#contrast-minimum)."""

import re
from pathlib import Path

import pytest
from django.contrib.staticfiles import finders

GROUNDS = ["bg", "surface", "sunken", "raised"]
TEXTS = ["text", "muted", "accent", "accent-hover", "good", "live", "bad", "hold", "neutral"]
TONES = ["good", "live", "bad", "hold", "neutral", "accent"]
FILLS = ["fill-done", "fill-running", "fill-failed", "fill-cancelled", "fill-spent"]
TEXT_PAIRS = [(text, ground) for text in TEXTS for ground in GROUNDS]
TEXT_PAIRS += [(tone, f"{tone}-soft") for tone in TONES] + [("text", f"{tone}-soft") for tone in TONES]
TEXT_PAIRS += [("on-accent", "accent"), ("on-accent", "accent-hover")]
SHAPE_PAIRS = [(fill, "track") for fill in FILLS] + [(line, "surface") for line in ("line-strong", "focus")]


def read_tokens():
    css = Path(finders.find("evalsite/tokens.css")).read_text()
    return dict(re.findall(r"--([a-z-]+): light-dark\((#[0-9a-f]{6}), (?:#[0-9a-f]{6})\)", css)), dict(
        re.findall(r"--([a-z-]+): light-dark\((?:#[0-9a-f]{6}), (#[0-9a-f]{6})\)", css)
    )


def compute_luminance(colour):
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def compute_contrast(first, second):
    low, high = sorted((compute_luminance(first), compute_luminance(second)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(("front", "back"), TEXT_PAIRS)
def test_text_has_a_contrast_of_four_and_a_half(theme, front, back):
    palette = read_tokens()[theme]
    assert compute_contrast(palette[front], palette[back]) >= 4.5


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(("front", "back"), SHAPE_PAIRS)
def test_shapes_and_edges_of_controls_have_a_contrast_of_three(theme, front, back):
    palette = read_tokens()[theme]
    assert compute_contrast(palette[front], palette[back]) >= 3
