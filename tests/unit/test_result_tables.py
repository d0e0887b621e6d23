"""A table of results has the same content in every format."""

import csv
import io
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from grading_app.results.table import FORMATS, ResultColumn, ResultTable, escape_latex
from grading_app.views.tables.results import make_html_table

COLUMNS = (
    ResultColumn("condition", "Condition"),
    ResultColumn("n", "n", "count"),
    ResultColumn("accuracy", "Accuracy", "share"),
    ResultColumn("accuracy_ci", "95 % interval", "share_interval"),
    ResultColumn("difference", "Difference", "signed", 3),
    ResultColumn("p", "p (Holm)", "p"),
    ResultColumn("cost", "Cost", "money"),
)
ROWS = (
    {"condition": "=a_b|c", "n": 1319, "accuracy": 0.851, "accuracy_ci": (0.83, 0.87), "difference": -0.0673, "p": 1e-9,
     "cost": 1.5},
    {"condition": "small & fast", "n": 0, "accuracy": None, "accuracy_ci": None, "difference": float("nan"), "p": None,
     "cost": None},
)  # fmt: skip
TABLE = ResultTable("leaderboard", "Leaderboard", COLUMNS, ROWS, test="McNemar's exact test.", sentence="b beats a.")


def test_cells_have_rounded_values_and_a_dash_for_missing_values():
    first, second = TABLE.cells()
    assert first == ["=a_b|c", "1\u202f319", "85.1 %", "83.0 to 87.0 %", "−0.067", "< .001", "$1.50"]
    assert second == ["small & fast", "0", "–", "–", "–", "–", "–"]


def test_csv_keeps_all_digits_and_escapes_formulas():
    first, second = csv.DictReader(io.StringIO(TABLE.render("csv")))
    assert first["condition"] == "'=a_b|c"
    assert float(first["accuracy_ci_low"]) == 0.83
    assert float(first["p"]) == 1e-9
    assert second["accuracy"] == second["accuracy_ci_high"] == second["difference"] == ""


def test_json_has_the_values_and_their_tests():
    result = json.loads(TABLE.render("json"))
    assert result["rows"][0]["difference"] == -0.0673
    assert result["rows"][1]["difference"] is None
    assert result["test"] == "McNemar's exact test."


def test_markdown_escapes_special_characters():
    text = TABLE.render("md")
    assert "| =a\\_b\\|c | 1\u202f319 |" in text
    assert "| --- | ---: |" in text
    assert "b beats a." in text


def test_latex_is_a_booktabs_table():
    text = TABLE.render("latex")
    assert r"\begin{tabular}{lrrrrrr}" in text
    assert r"=a\_b|c & 1\,319 & 85.1 \% & 83.0 to 87.0 \% & $-$0.067" in text
    assert r"small \& fast" in text
    assert [text.count(rule) for rule in (r"\toprule", r"\midrule", r"\bottomrule")] == [1, 1, 1]


@given(st.text())
def test_latex_never_interprets_a_text(text):
    for command in (r"\textbackslash{}", r"\textasciitilde{}", r"\textasciicircum{}"):
        assert escape_latex(command) != command
    bare = escape_latex(text)
    for escaped in (r"\textbackslash{}", r"\textasciitilde{}", r"\textasciicircum{}", r"\textless{}", r"\textgreater{}",
                    "$-$", r"$\pm$", r"$\times$", r"$\cdot$", r"$\leq$", r"$\geq$", r"\,", "\\{", "\\}", "\\&", "\\%",
                    "\\$", "\\#", "\\_", "~"):  # fmt: skip
        bare = bare.replace(escaped, "")
    assert not set(bare) & set("\\&%$#_{}^\n\r")


@pytest.mark.parametrize("file_format", FORMATS)
def test_an_empty_table_has_a_header_in_every_format(file_format):
    text = ResultTable("none", "Nothing", COLUMNS, ()).render(file_format)
    assert ("rows" if file_format == "json" else "95" if file_format in ("md", "latex") else "accuracy_ci_low") in text


def test_an_unknown_format_is_an_error():
    with pytest.raises(KeyError):
        TABLE.render("xlsx")


def test_details_of_a_row_open_on_the_page_move_with_it_and_stay_out_of_files():
    rows = [{"name": "a"}, {"name": "b"}]
    table = ResultTable("t", "T", [ResultColumn("name", "Name")], rows, details=[["<i>", "two"], ["x"]])
    assert "<summary>a</summary><p>&lt;i&gt;</p><p>two</p></details>" in str(make_html_table(table).body)
    assert table.sort_by("-name").details == [["x"], ["<i>", "two"]]
    assert ResultTable.from_content(table.content()).details == [["<i>", "two"], ["x"]]
    assert not any("two" in table.render(file_format) for file_format in FORMATS)
