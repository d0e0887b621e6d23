"""A shuffled experiment: workers claim its trials in the random order of its seed, and nothing else changes."""

import pytest
from django.core.exceptions import ValidationError

from runs_app import run_control
from runs_app.models import Run, Trial
from tests import factories
from tests.factories.engine import admit, build_reply, drain, register_worker

IN_ORDER = [f"thing-{n}" for n in range(30)]


def make_run(shuffle, slug="study", **fields):
    endpoint = factories.make_endpoint(slug, max_concurrency=40, adaptive=False)
    experiment = factories.make_experiment(
        slug,
        dataset=factories.make_dataset(slug, [{"key": key, "input": f"{slug} {key}"} for key in IN_ORDER]),
        models=[factories.make_model(slug, endpoint=endpoint)],
        shuffle=shuffle,
        **{"max_usd": None, "cache": False, **fields},
    )
    run_control.launch(experiment, by=experiment.owner)
    return Run.objects.get(experiment=experiment)


def claim_keys(run):
    """Claim the trials one by one, and return the keys of their items."""
    worker = register_worker()
    claims = [claim for _ in IN_ORDER for claim in admit(worker, 1)]
    keys = dict(run.trials.values_list("pk", "item__key"))
    return [keys[claim.trial_id] for claim in claims]


def test_without_a_seed_items_are_claimed_in_their_order(transactional_db):
    assert claim_keys(make_run(None)) == IN_ORDER


def test_a_seed_shuffles_the_order_of_claims_and_another_seed_gives_another_order(transactional_db):
    orders = {}
    for seed in (0, 7, 8):
        run = make_run(seed, f"study-{seed}")
        orders[seed] = claim_keys(run)
        assert sorted(orders[seed]) == sorted(IN_ORDER)
    assert IN_ORDER not in orders.values()
    assert len({tuple(order) for order in orders.values()}) == 3


def test_the_order_depends_on_keys_not_on_the_database(transactional_db):
    def read_order(run):
        return list(run.trials.order_by("place").values_list("item__key", flat=True))

    first, again = (make_run(7, slug) for slug in ("one", "two"))
    assert read_order(first) == read_order(again)
    assert len(set(first.trials.values_list("place", flat=True))) == 30


def test_all_dimensions_of_an_item_are_claimed_together(transactional_db):
    dimensions = [factories.make_dimension(name) for name in ("valence", "arousal")]
    run = make_run(7, dimensions=dimensions)
    places = run.trials.values_list("item_id", "place")
    assert len(places) == 60
    assert len(set(places)) == 30


def test_a_pilot_and_the_rounds_of_an_adaptive_design_are_shuffled_too(transactional_db):
    adaptive = {"by": "category", "scorer": "exact_match", "round": 8, "max": 24, "targetci": 0.01}
    team = factories.make_team()
    items = [{"key": key, "input": key, "target": "right", "category": "one"} for key in IN_ORDER]
    experiment = factories.make_experiment(
        "rounds", owner=team.owner, dataset=factories.make_dataset("rounds", items), adaptive=adaptive, shuffle=7,
        scorers=["exact_match"], max_usd=None, cache=False,
    )  # fmt: skip
    run_control.launch(experiment, by=experiment.owner, pilot=2)
    assert 0 not in Trial.objects.values_list("place", flat=True)
    run_control.launch(experiment, by=experiment.owner)

    async def call(request):
        return build_reply("right")

    drain(call)
    places = list(Trial.objects.values_list("place", flat=True))
    assert len(places) >= 24
    assert len(set(places)) == len(places)


@pytest.mark.django_db
def test_a_seed_out_of_range_is_refused():
    experiment = factories.make_experiment("study")
    experiment.shuffle = -1
    with pytest.raises(ValidationError, match="2,147,483,647"):
        experiment.full_clean()
