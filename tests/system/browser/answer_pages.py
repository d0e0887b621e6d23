"""What a browser reads off the pages about rated answers."""

TOUCH = {"has_touch": True, "is_mobile": True}


def apples_left(page):
    """What the answer on the screen says: read from the page, as a person would."""
    return int(page.locator(".rating-part").last.inner_text().rsplit("are ", 1)[1].split()[0])


def shown(page, table, name):
    """The cells of a row of a table, by the section and the row's name."""
    rows = page.locator(f"section[aria-labelledby={table}] tbody tr").filter(has=page.get_by_text(name))
    rows.first.wait_for()
    return [cell.strip() for cell in rows.first.locator("td").all_inner_texts()]
