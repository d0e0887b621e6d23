"""A page shows the first rows of a long table and says so; files have all rows."""

from django.template.loader import render_to_string
from django.test import RequestFactory

from grading_app.results.table import ResultColumn, ResultTable
from grading_app.views.tables.results import MAX_ROWS
from grading_app.views.tables_and_figures import get_table_context


def render(table, order=""):
    request = RequestFactory().get("/")
    context = {**get_table_context(table, order), "request": request}
    return " ".join(render_to_string("grading_app/partials/result_table.html", context, request).split())


def make_long_table(n, **fields):
    columns = [ResultColumn("item", "Item"), ResultColumn("score", "Score", "count")]
    return ResultTable("long", "Long", columns, [{"item": f"row-{at}", "score": at} for at in range(n)], **fields)


def test_a_long_table_is_truncated_on_the_page_and_complete_in_files():
    table = make_long_table(MAX_ROWS + 20)
    page = render(table)
    assert f"row-{MAX_ROWS - 1}<" in page
    assert f"row-{MAX_ROWS}<" not in page
    assert f"The first {MAX_ROWS} of {MAX_ROWS + 20} rows are shown." in page
    assert f"row-{MAX_ROWS + 19}" in table.render("csv")


def test_a_table_is_sorted_before_truncation():
    page = render(make_long_table(MAX_ROWS + 20, is_sortable=True), "-score")
    assert f"row-{MAX_ROWS + 19}<" in page
    assert "row-0<" not in page


def test_a_short_table_is_complete():
    page = render(make_long_table(3))
    assert "row-2<" in page
    assert "rows are shown" not in page
