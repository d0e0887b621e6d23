"""Each address of the site is named by a page, a table or a row that leads to it."""

import re

from django.urls import URLPattern, get_resolver

from evalsite.lib.ops.installation import ROOT

APPS = ("evalsite", "datasets_app", "runs_app", "grading_app")
QUOTED = re.compile(r"""["']([a-z][a-z0-9_]+)["']""")
UNLINKED = {
    "gateway_chat": "for programs, as docs/api.md says",
    "gateway_messages": "for programs, as docs/api.md says",
    "gateway_models": "for programs, as docs/api.md says",
    "healthz": "for monitors and containers",
    "help_image": "the renderer of the help writes it",
    "llms_txt": "for assistants, which look for it at the root",
    "matrix_cell": "the matrix writes it as a relative address",
    "metrics": "for Prometheus",
    "password_change_done": "Django's own view leads there",
}


def list_names():
    """Yield the name of each address of the site. The admin links to its own pages, and a document lists the API's."""
    patterns = list(get_resolver().url_patterns)
    while patterns:
        pattern = patterns.pop()
        if isinstance(pattern, URLPattern):
            yield pattern.name
        elif pattern.app_name not in ("admin", "ninja"):
            patterns += pattern.url_patterns


def find_mentioned_names():
    """Return each quoted name in a template or a module, such as of a link, a redirect or a row's address."""
    files = [*(ROOT / "templates").rglob("*.html"), *(file for app in APPS for file in (ROOT / app).rglob("*.py"))]
    return {name for file in files if file.name != "urls.py" for name in QUOTED.findall(file.read_text())}


def test_every_address_is_linked():
    missing = set(list_names()) - find_mentioned_names() - set(UNLINKED)
    assert not missing, "no page leads to these addresses: add a link, or a sentence to UNLINKED"


def test_each_exception_is_an_address():
    assert set(UNLINKED) <= set(list_names())
