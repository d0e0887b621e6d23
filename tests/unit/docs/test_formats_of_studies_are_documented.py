"""The documents have a row for each format of studies, so that people know what an import takes."""

import re
from pathlib import Path

from grading_app.study_import.importers import FORMATS

DOCUMENT = Path(__file__).parents[3] / "docs" / "importing.md"


def test_each_format_of_studies_has_a_row():
    section = DOCUMENT.read_text().partition("## Studies of other tools")[2].partition("\n## ")[0]
    documented = {
        name for row in re.findall(r"^\| (`.*?) \|", section, re.MULTILINE) for name in re.findall(r"`(.+?)`", row)
    }
    assert set(FORMATS) - documented == set(), "add a row to docs/importing.md"
