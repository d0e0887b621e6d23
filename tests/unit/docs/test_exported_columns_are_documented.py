"""docs/exports.md names every column of every exported table."""

import re
from pathlib import Path

import pytest

from grading_app.publish.export.export_tables import TABLES

PAGE = Path(__file__).resolve().parents[3] / "docs" / "exports.md"
SECTIONS = dict(re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", PAGE.read_text("utf-8"), re.MULTILINE | re.DOTALL))
TOKEN_COUNTS = ["input_tokens", "output_tokens", "reasoning_tokens", "cache_read_tokens", "cache_write_tokens"]


@pytest.mark.parametrize("table", TABLES)
def test_the_section_of_a_table_names_each_column(table):
    documented = set(re.findall(r"`(\w+)`", SECTIONS["The design cell"] + SECTIONS[table]))
    if "five token counts" in SECTIONS[table]:
        documented.update(TOKEN_COUNTS)
    assert [column.name for column in TABLES[table].columns if column.name not in documented] == []
