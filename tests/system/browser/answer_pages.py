"""Helpers that read pages about rated answers in a browser."""

from playwright.sync_api import expect

TOUCH = {"has_touch": True, "is_mobile": True}


def read_apples_left(page):
    """Return the number in the shown answer, read from the page like a rater does."""
    return int(page.locator(".rating-part").last.inner_text().rsplit("are ", 1)[1].split()[0])


def read_row(page, table, name):
    """Return the cells of a row of a table, by the heading of its section and the name of the row."""
    rows = page.locator(f"section[aria-labelledby={table}] tbody tr").filter(has=page.get_by_text(name))
    rows.first.wait_for()
    return [cell.strip() for cell in rows.first.locator("td").all_inner_texts()]


def open_measures(page, *, units, raters):
    """Check how much the first sentence on the agreement covers, and open all measures with their coverage."""
    expect(page.get_by_text(f"over {units} units and {raters} raters")).to_be_visible()
    page.locator(".results-more > summary").click()
    expect(page.get_by_text(f"{units} units with two or more ratings")).to_be_visible()
