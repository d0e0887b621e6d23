"""Characters that PostgreSQL cannot store, and visible marks for control characters. Pure: no Django, no I/O.

Bidirectional and terminal control characters change how a text is displayed but are invisible. They can make one text
look like another, so readers of a page or a terminal must see them. Tab and line feed stay unmarked; on a page,
carriage return does too.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Mapping
from html import escape
from typing import Any


def describe_unstorable(value: Any) -> str:
    """Return the end of a sentence that says why PostgreSQL cannot store the value, or "" if it can.

    The value is a text or a JSON value, which is searched recursively.
    """
    if isinstance(value, str):
        if "\x00" in value:
            return "contains a NUL character"
        try:
            value.encode("utf-8")
        except UnicodeEncodeError as error:
            return f"is not Unicode text at character {error.start + 1}"
        return ""
    if isinstance(value, float):
        return "" if math.isfinite(value) else f"contains {value}, which is not a JSON number"
    parts: list[Any] = []
    if isinstance(value, Mapping):
        parts = [*value, *value.values()]
    elif isinstance(value, list | tuple):
        parts = list(value)
    return next(filter(None, map(describe_unstorable, parts)), "")


def replace_unstorable(text: str) -> str:
    """Return the text with question marks for characters that PostgreSQL cannot store."""
    return text.replace("\x00", "?").encode("utf-8", "replace").decode()


BIDI = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u206f"
_ON_A_PAGE = re.compile(f"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f{BIDI}]")
_IN_A_TERMINAL = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029{BIDI}]")
# `plain`: these tags can contain only text, so a mark inside them is plain text and not an element.
# `kept`: these parts stay unchanged. A form sends the value of its fields back, and it must not change unseen.
_HTML_PARTS = re.compile(
    r"(?P<kept><textarea\b.*?</textarea\s*>|<(?:script|style)\b.*?</(?:script|style)\s*>|<!--.*?-->)"
    r"|(?P<plain><(?:title|option)\b.*?</(?:title|option)\s*>)"
    r"|(?P<tag><[^>]*>)",
    re.DOTALL | re.IGNORECASE,
)
MAX_ELEMENTS = 1_000  # Maximum per page, so that a text full of controls cannot make the page ten times as large.
_VALUES = re.compile(r"""(\bvalue=(?:"[^"]*"|'[^']*'))""")


def _format_code(character: str) -> str:
    return f"U+{ord(character):04X}"


def mark_text(text: str) -> str:
    """Replace each control character with a visible mark such as ⟦U+202E⟧."""
    return _ON_A_PAGE.sub(lambda match: f"⟦{_format_code(match[0])}⟧", text)


def mark_html(page: str) -> str:
    """Replace control characters in an HTML page with marks that show the character's name on hover.

    After MAX_ELEMENTS marks, further marks are plain text. The values of form fields stay unchanged. The page must
    escape every `<` that is not markup, because a tag is taken to end at the next `>`.
    """
    if not _ON_A_PAGE.search(page):
        return page
    pieces, end, remaining = [], 0, MAX_ELEMENTS
    for part in _HTML_PARTS.finditer(page):
        text, remaining = _mark_elements(page[end : part.start()], remaining)
        pieces += [text, _mark_part(part)]
        end = part.end()
    return "".join([*pieces, _mark_elements(page[end:], remaining)[0]])


def _mark_part(part: re.Match[str]) -> str:
    if part["kept"]:
        return part["kept"]
    values = _VALUES.split(part[0])
    return "".join(piece if at % 2 else mark_text(piece) for at, piece in enumerate(values))


def _mark_elements(text: str, most: int) -> tuple[str, int]:
    """Return the text with marks, and the number of elements that may still be made.

    After `most` elements, further marks are plain text.
    """
    if not most:
        return mark_text(text), 0
    result, count = _ON_A_PAGE.subn(lambda match: _render_element(match[0]), text, count=most)
    return (mark_text(result), 0) if count == most else (result, most - count)


def _render_element(character: str) -> str:
    code = _format_code(character)
    name = unicodedata.name(character, "control character").lower()
    return f'<span class="control-mark" data-code="{ord(character)}" title="{code} {escape(name)}">⟦{code}⟧</span>'


def escape_for_terminal(text: str) -> str:
    r"""Replace each control character with its JSON escape (`\u001b`).

    Text in JSON keeps its meaning, and no text can move the cursor of the terminal.
    """
    return _IN_A_TERMINAL.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
