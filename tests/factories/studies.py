"""Finished rating studies."""

from tests import factories
from tests.factories.queues import make_image


def make_rated_study(slug="study", *, dimensions=("valence",), images=False, **fields):
    """Two models rate eight items with norms twice; the last item's second rating is refused."""
    items = [{"key": f"picture-{n}", "category": "AB"[n % 2], "norms": {"valence": 2 + n % 3}} for n in range(8)]
    items = [{**one, "image": make_image(at)} for at, one in enumerate(items)] if images else items
    made = factories.make_experiment(
        slug,
        dataset=factories.make_dataset(f"{slug}-pictures", items, source="Photographs of the lab", licence="CC0"),
        models=[factories.make_model("a"), factories.make_model("b")],
        dimensions=[factories.make_dimension(name) for name in dimensions],
        samples=2,
        **fields,
    )
    for run in factories.make_runs(made, status="done"):
        above = run.condition.model.name == "b"
        factories.plan_trials(run, answer=lambda item, _, index, above=above: _rating(item, above, index))
    return made


def _rating(item, above, index):
    if item.position == 7 and index:
        return factories.failed("content_refused")
    number = 1 + item.position % 3 + above + index
    return {"answer": str(number), "rating": number}
