"""The rows of a table on a page: cells are escaped and labelled; what a column's cells share is computed once."""

import django_tables2 as tables
from django.template.loader import render_to_string

MARKUP = "<script>alert(1)</script>"


class CountingColumn(tables.Column):
    """A column that notes the values that it renders."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.rendered = []

    def render(self, value):
        self.rendered.append(value)
        return value


class SmallTable(tables.Table):
    name = tables.Column(verbose_name='"Name"', attrs={"td": {"class": "primary"}})
    score = CountingColumn()

    class Meta:
        empty_text = "No rows yet."
        orderable = False

    n_computed = 0
    """How often the classes of a column's cells were computed."""

    def get_column_class_names(self, classes_set, bound_column):
        self.n_computed += 1
        return super().get_column_class_names(classes_set, bound_column)


def render(rows):
    table = SmallTable(rows)
    return table, render_to_string("tables/table.html", {"table": table})


def test_each_cell_is_rendered_once_with_its_class_and_label():
    table, page = render([{"name": "first", "score": 1}, {"name": "second", "score": 2}])
    assert table.columns["score"].column.rendered == [1, 2]
    assert page.count("<tr") == 3
    assert page.count('<td class="primary" role="cell" data-label="&quot;Name&quot;"><div class="cell">') == 2
    assert '<div class="cell">first</div></td>' in page


def test_the_attributes_of_a_column_are_computed_as_often_for_many_rows_as_for_one():
    counts = {render([{"name": "same", "score": 1}] * n_rows)[0].n_computed for n_rows in (1, 20)}
    assert len(counts) == 1
    assert counts.pop() > 0


def test_a_cell_shows_markup_as_text_and_a_missing_value_as_a_dash():
    _, page = render([{"name": MARKUP, "score": None}])
    assert MARKUP not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert '<div class="cell">—</div>' in page


def test_a_table_without_rows_says_so():
    _, page = render([])
    assert '<div class="cell muted">No rows yet.</div>' in page
    assert 'colspan="2"' in page
