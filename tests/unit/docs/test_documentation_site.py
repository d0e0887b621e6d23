"""The documents build as a site of their own: offline, without a warning, and without files of other hosts."""

import os
import re
import subprocess
import sys

import pytest

from evalsite.lib.ops.installation import ROOT

LOADED = re.compile(r"""<(?:script|link|img)[^>]*(?:src|href)=["']?(https?:)?//""")


@pytest.mark.slow
def test_the_site_of_the_documents_builds_strictly_and_loads_nothing_from_other_hosts(tmp_path):
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    nowhere = dict.fromkeys(("http_proxy", "https_proxy"), "http://127.0.0.1:9")
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", **nowhere}
    built = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    pages = {page.parent.name: page.read_text(encoding="utf-8") for page in tmp_path.glob("*/index.html")}
    assert {"glossary", "first-study", "api-reference"} <= set(pages)
    assert [name for name, text in pages.items() if LOADED.search(text)] == []
    assert "/api/v1/experiments" in pages["api-reference"]
