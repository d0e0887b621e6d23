"""Answers for people to rate: two models on five questions about apples, and what is read off the pages about them."""

from tests import factories

TOUCH = {"has_touch": True, "is_mobile": True}
ITEMS = 5
STEPS = "First, the boxes hold {n} each. There are three of them, and one is half empty.\nSo there are {n} left."


def make_apples(owner):
    items = [
        {**factories.plain_question(n), "input": f"Three boxes hold {n} apples each. How many apples are there?"}
        for n in range(ITEMS)
    ]
    experiment = factories.make_experiment(
        "apples", owner=owner, dataset=factories.make_dataset("apples", items), status="active",
        models=[factories.make_model(name) for name in ("sim-large", "sim-small")],
    )  # fmt: skip
    for run in factories.make_runs(experiment):
        factories.plan_trials(run, answer=lambda item, *_: STEPS.format(n=item.position))
    return experiment


def apples_left(page):
    """What the answer on the screen says: read from the page, as a person would."""
    return int(page.locator(".rating-part").last.inner_text().rsplit("are ", 1)[1].split()[0])


def shown(page, table, name):
    """The cells of a row of a table, by the section and the row's name."""
    rows = page.locator(f"section[aria-labelledby={table}] tbody tr").filter(has=page.get_by_text(name))
    rows.first.wait_for()
    return [cell.strip() for cell in rows.first.locator("td").all_inner_texts()]
