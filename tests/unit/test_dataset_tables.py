"""The cells of the tables of changes and of norms."""

from django.utils.html import strip_tags

from datasets_app.models import Norm
from datasets_app.tables import BadgeHistoryTable, HistoryTable, ItemNormTable, NormSummaryTable
from evalsite.lib.history import StatusChange

CHANGES = [
    StatusChange(from_value="draft", to_value="active", actor="ada", reason="ready"),
    StatusChange(to_value="draft", actor="ada"),
    StatusChange(aspect="title", from_value="Old", to_value="New", actor="ada"),
]


def read_cells(table, *names):
    return [tuple(strip_tags(str(row.get_cell(name))).strip() for name in names) for row in table.rows]


def test_a_history_shows_the_old_and_the_new_value():
    assert read_cells(HistoryTable(CHANGES), "change", "actor", "reason") == [
        ("draft  active", "ada", "ready"),
        ("–  draft", "ada", "–"),
        ("title Old  New", "ada", "–"),
    ]


def test_a_history_of_data_shows_statuses_as_badges():
    table = BadgeHistoryTable(CHANGES)
    assert read_cells(table, "change") == [("Draft  Active",), ("Draft",), ("title: Old  New",)]
    assert read_cells(table, "reason") == read_cells(HistoryTable(CHANGES), "reason") == [("ready",), ("–",), ("–",)]
    assert not any(column.orderable for column in table.columns)
    assert ['class="status ' in str(row.get_cell("change")) for row in table.rows] == [True, True, False]


def test_a_summary_of_norms_counts_the_items_only_if_some_have_none():
    row = {"dimension": "valence", "average": -1.005, "lowest": -2.0, "highest": 3.0, "people": None}
    table = NormSummaryTable([row | {"items": 4}, row | {"items": 3, "people": 12.25}], 4)
    assert read_cells(table, *table.columns.names()) == [
        ("valence", "4", "−1.01", "−2.00", "3.00", "–"),
        ("valence", "3 of 4", "−1.01", "−2.00", "3.00", "12.3"),
    ]


def test_norms_of_an_item_show_a_dash_for_an_unknown_sd():
    table = ItemNormTable([Norm(dimension="valence", mean=4, n=1200)])
    assert read_cells(table, *table.columns.names()) == [("valence", "4.00", "–", "1\u202f200")]
