"""The pictures of the documents exist, are small, and say in words what they show."""

import re

import pytest

from evalsite.lib.ops.installation import ROOT

DOCS = ROOT / "docs"
IMAGE = re.compile(r"!\[([^\]]*)\]\(images/([^)]+)\)")
SHOWN = [(page.name, *found) for page in sorted(DOCS.glob("*.md")) for found in IMAGE.findall(page.read_text("utf-8"))]


@pytest.mark.parametrize(("document", "text", "name"), SHOWN)
def test_a_picture_exists_is_small_and_has_a_text(document, text, name):
    file = DOCS / "images" / name
    assert file.is_file(), f"{document}: run `make pictures`"
    assert file.stat().st_size <= 150_000
    assert len(text) > 20, "a reader who cannot see the picture reads this text"


def test_every_picture_of_a_tutorial_is_shown():
    made = {file.relative_to(DOCS / "images").as_posix() for file in (DOCS / "images").rglob("*/*.png")}
    assert made <= {name for _, _, name in SHOWN}
