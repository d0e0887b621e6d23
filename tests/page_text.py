"""The text of a page, for tests that quote it."""

import re


def page_text(response):
    """Return a page's HTML with each run of spaces and line breaks as one space, as a browser shows it.

    No-break spaces stay: numbers are grouped by them.
    """
    return re.sub(r"[ \n]+", " ", response.content.decode())
