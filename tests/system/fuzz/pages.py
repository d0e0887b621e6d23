"""A parser of pages: forms with the values that a browser would send, and parameters of links to the same page."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from urllib.parse import parse_qsl, urljoin, urlsplit

PLAUSIBLE = {"number": "1", "email": "a@example.org", "url": "http://127.0.0.1:9/v1", "date": "2026-03-01"}


@dataclass
class Form:
    """A form. `fields` are ordered (name, value) pairs; names may repeat. `files` are the names of file inputs."""

    action: str
    method: str
    fields: list[tuple[str, str]] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    buttons: list[tuple[str, str, str]] = field(default_factory=list)

    def variants(self) -> list[Form]:
        """Return the form as each of its buttons would send it. `buttons` are (name, value, form action)."""
        return [
            replace(
                self,
                action=urljoin(self.action, action) if action else self.action,
                fields=[*self.fields, *([(name, value)] if name else [])],
                buttons=[],
            )
            for name, value, action in dict.fromkeys(self.buttons) or [("", "", "")]
        ]

    @property
    def names(self) -> list[str]:
        return list(dict.fromkeys(name for name, _ in self.fields if name != "csrfmiddlewaretoken"))

    def with_value(self, name: str, values: list[str]) -> list[tuple[str, str]]:
        """Return the fields with the values of one field replaced."""
        other_fields = [(other, value) for other, value in self.fields if other != name]
        return [*other_fields, *((name, value) for value in values)]


class PageParser(HTMLParser):
    def __init__(self, address: str) -> None:
        super().__init__(convert_charrefs=True)
        self.address = address
        self.forms: list[Form] = []
        self.links: set[str] = set()
        self.parameters: set[str] = set()
        self._form: Form | None = None
        self._select: tuple[str, bool, bool] | None = None
        self._options: list[tuple[str, bool]] = []
        self._textarea: tuple[str, bool] | None = None
        self._text = ""

    def handle_starttag(self, tag, attributes):
        attrs = dict(attributes)
        handler = getattr(self, f"_start_{tag}", None)
        if handler:
            handler(attrs)

    def handle_endtag(self, tag):
        handler = getattr(self, f"_end_{tag}", None)
        if handler:
            handler()

    def handle_data(self, data):
        self._text += data

    def _start_a(self, attrs):
        target = urlsplit(urljoin(self.address, attrs.get("href") or ""))
        if target.netloc or target.scheme not in ("", "http"):
            return
        self.links.add(target.path)
        if target.path == urlsplit(self.address).path:
            self.parameters |= {name for name, _ in parse_qsl(target.query, keep_blank_values=True)}

    def _start_form(self, attrs):
        action = urljoin(self.address, attrs.get("action") or self.address)
        self._form = Form(action, (attrs.get("method") or "get").lower())
        self.forms.append(self._form)

    def _end_form(self):
        self._form = None

    def _start_input(self, attrs):
        name, kind = attrs.get("name"), attrs.get("type", "text")
        if kind == "submit":
            self._start_button(attrs)
        if self._form is None or not name or kind in ("submit", "button", "reset", "image"):
            return
        if kind == "file":
            self._form.files.append(name)
        elif kind not in ("checkbox", "radio"):
            self._form.fields.append((name, attrs.get("value") or self._plausible(attrs)))
        elif "checked" in attrs or (kind == "radio" and name not in self._form.names):
            self._form.fields.append((name, attrs.get("value", "on")))

    @staticmethod
    def _plausible(attrs):
        if "required" not in attrs:
            return ""
        return attrs.get("min") or PLAUSIBLE.get(attrs.get("type", "text"), "plain")

    def _start_button(self, attrs):
        if self._form is not None and attrs.get("type", "submit") == "submit":
            self._form.buttons.append(
                (attrs.get("name") or "", attrs.get("value") or "", attrs.get("formaction") or "")
            )

    def _start_select(self, attrs):
        self._select = (attrs.get("name", ""), "multiple" in attrs, "required" in attrs)
        self._options = []

    def _start_option(self, attrs):
        self._options.append((attrs.get("value", ""), "selected" in attrs))

    def _end_select(self):
        name, multiple, required = self._select or ("", False, False)
        self._select = None
        if self._form is None or not name:
            return
        chosen = [value for value, selected in self._options if selected]
        if not multiple and not chosen:
            chosen = [value for value, _ in self._options][:1]
        if required and not any(chosen):
            chosen = [value for value, _ in self._options if value][:1] or chosen
        self._form.fields += [(name, value) for value in chosen or ([] if multiple else [""])]

    def _start_textarea(self, attrs):
        self._textarea, self._text = (attrs.get("name", ""), "required" in attrs), ""

    def _end_textarea(self):
        name, required = self._textarea or ("", False)
        if self._form is not None and name:
            text = self._text.removeprefix("\n")
            self._form.fields.append((name, text or ("plain {{input}}" if required else "")))
        self._textarea = None


def parse_page(address: str, text: str) -> PageParser:
    parser = PageParser(address)
    parser.feed(text)
    parser.close()
    return parser
