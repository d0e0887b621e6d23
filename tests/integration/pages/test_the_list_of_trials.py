"""Filters and keyset pages of trials give the same rows as a plain query, within the reader's permissions."""

import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from runs_app.models import Run, Trial
from runs_app.trial_list import trial_pagination
from tests import factories
from tests.shared_rows import shared_rows

ADDRESS = "/trials/"


@shared_rows
def many(people_of_file):
    """Return two experiments of sixty trials each, with keys alternating between their runs; the second is shared."""
    dataset = factories.make_dataset("many", 10)
    dimension = factories.make_dimension("valence")
    made = []
    for slug, sharing in (("mine", "private"), ("shared", "group")):
        experiment = factories.make_experiment(
            slug, owner=people_of_file["owner"], dataset=dataset, samples=3, dimensions=[dimension], sharing=sharing,
            models=[factories.make_model("a"), factories.make_model("b")], status="active",
        )  # fmt: skip
        made.append((experiment, factories.make_runs(experiment)))
    for number in range(2):
        for _, runs in made:
            factories.plan_trials(runs[number], answer=make_outcome)
    return made


def make_outcome(item, dimension, sample_idx):
    if item.position == 9:
        return None
    if item.position == 8:
        return factories.build_failed_fields("timeout" if sample_idx else "refusal", "No answer")
    return {"answer": f"Answer {item.position} of {sample_idx}", "rating": 1 + item.position % 7,
            "truncated": item.position == 3, "from_cache": sample_idx == 2}  # fmt: skip


def get_keys(response):
    return response.context["page"].keys


def walk_pages(client, query, *, back=False):
    """Return the keys of every page, following Next (or Previous from the end)."""
    keys_seen, query_now = [], query
    for _ in range(20):
        response = client.get(f"/trials/?{query_now}")
        keys_seen = get_keys(response) + keys_seen if back else keys_seen + get_keys(response)
        url = response.context["previous_url" if back else "next_url"]
        if not url:
            return keys_seen
        query_now = url.removeprefix("?")
    raise AssertionError("the pages do not end")


FILTERS = {
    "": {},
    "experiment=mine": {"run__experiment__slug": "mine"},
    "status=failed": {"status": "failed"},
    "status=pending&experiment=shared": {"status": "pending", "run__experiment__slug": "shared"},
    "error=timeout": {"error_class": "timeout"},
    "error=timeout&status=failed&item=item-8": {"error_class": "timeout", "item__key": "item-8"},
    "item=item-3": {"item__key": "item-3"},
    "item=item-3&rating=4": {"item__key": "item-3", "rating": 4},
    "item=item-3&rating=5": {"item__key": "item-3", "rating": 5},
    "rating=2": {"rating": 2},
    "category=odd": {"item__category": "odd"},
    "truncated=true": {"truncated": True},
    "from_cache=true&status=done": {"from_cache": True, "status": "done"},
    "refused=true": {"refused": True},
    "contains=ANSWER 4": {"answer__icontains": "answer 4"},
    "contains=%": {"answer__contains": "%"},
    "error=nothing": {"error_class": "nothing"},
    "item=nowhere": {"item__key": "nowhere"},
}


@pytest.mark.slow
@pytest.mark.parametrize("query", FILTERS)
def test_pages_contain_the_rows_of_a_plain_query(many, as_, query, monkeypatch):
    monkeypatch.setattr(trial_pagination, "PAGE", 7)
    monkeypatch.setattr(trial_pagination, "SEARCHED", 25)
    expected = list(Trial.objects.filter(**FILTERS[query]).order_by("pk").values_list("pk", flat=True))
    assert walk_pages(as_("owner"), query) == expected


@pytest.mark.slow
def test_paging_backwards_finds_the_same_rows(many, as_, monkeypatch):
    monkeypatch.setattr(trial_pagination, "PAGE", 7)
    monkeypatch.setattr(trial_pagination, "SEARCHED", 25)
    client, beyond = as_("owner"), Trial.objects.order_by("-pk").first().pk + 1
    for query in ("", "rating=2", "status=failed"):
        stem = f"{query}&" if query else ""
        assert walk_pages(client, f"{stem}before={beyond}", back=True) == walk_pages(client, query), query


@pytest.mark.slow
def test_previous_leads_back_to_the_page_before(many, as_, monkeypatch):
    monkeypatch.setattr(trial_pagination, "PAGE", 7)
    client = as_("owner")
    first = client.get(ADDRESS)
    second = client.get(ADDRESS + first.context["next_url"])
    again = client.get(ADDRESS + second.context["previous_url"])
    assert get_keys(again) == get_keys(first)
    assert first.context["previous_url"] == ""
    assert again.context["previous_url"] == ""


def test_a_range_without_matches_says_so_and_links_to_the_next(many, as_, monkeypatch):
    monkeypatch.setattr(trial_pagination, "SEARCHED", 10)
    response = as_("owner").get(ADDRESS, {"contains": "Answer 7 of 2"})
    assert "No matches in this part of the trials" in response.content.decode()
    assert response.context["next_url"]


@pytest.mark.slow
def test_a_viewer_sees_the_trials_of_shared_experiments_only(many, as_):
    shown = walk_pages(as_("viewer"), "")
    assert set(shown) == set(Trial.objects.filter(run__experiment__slug="shared").values_list("pk", flat=True))
    assert get_keys(as_("viewer").get(ADDRESS, {"run": Run.objects.filter(experiment__slug="mine").first().pk})) == []


def test_a_private_experiment_is_not_offered_and_shows_nothing(many, as_):
    response = as_("viewer").get(ADDRESS, {"experiment": "mine"})
    assert "experiment" in response.context["filter"].form.errors
    assert get_keys(response) == []


@pytest.mark.parametrize("query", ["rating=high", "status=odd", "run=-1", "experiment=none", "truncated=perhaps"])
def test_an_invalid_filter_shows_an_error_and_no_rows(many, as_, query):
    response = as_("owner").get(f"{ADDRESS}?{query}")
    assert response.status_code == 200
    assert response.context["filter"].form.errors
    assert get_keys(response) == []


def test_an_unknown_experiment_in_the_filter_is_named(many, as_):
    form = as_("owner").get(f"{ADDRESS}?experiment=nosuch").context["filter"].form
    assert form.errors["experiment"] == ["nosuch is not one of the choices. Choose another."]


@pytest.mark.parametrize("cursor", ["x", "-3", "99999999999999999999", "", "1e3", "٣"])
def test_a_cursor_that_is_not_a_key_is_ignored(many, as_, cursor):
    assert as_("owner").get(ADDRESS, {"after": cursor}).status_code == 200


@pytest.mark.slow
def test_the_number_of_queries_does_not_grow_with_the_rows(many, as_, monkeypatch):
    client = as_("owner")
    for query in ("", "experiment=mine", "status=failed", "contains=Answer", "item=item-3"):
        counts = set()
        for size in (1, 40):
            monkeypatch.setattr(trial_pagination, "PAGE", size)
            with CaptureQueriesContext(connection) as queries:
                client.get(f"{ADDRESS}?{query}")
            counts.add(len(queries))
        assert len(counts) == 1, (query, counts)
        assert counts.pop() <= 16, query


@pytest.mark.slow
def test_no_page_counts_or_skips_trials_of_a_large_search(many, as_, monkeypatch):
    """The runs have the counters of a large experiment."""
    monkeypatch.setattr("runs_app.trial_list.trial_order.MAX_SORTED", 50)
    with CaptureQueriesContext(connection) as queries:
        as_("owner").get(ADDRESS, {"contains": "Answer", "after": "3"})
    statements = [query["sql"].upper() for query in queries if "RUNS_APP_TRIAL" in query["sql"].upper()]
    assert statements
    assert not [sql for sql in statements if "COUNT(" in sql or re.search(r"\bOFFSET \d", sql)]


@pytest.mark.slow
def test_next_and_previous_of_a_trial_follow_the_filter(many, as_):
    failed = list(Trial.objects.filter(status="failed").order_by("pk"))
    response = as_("owner").get(f"/trials/{failed[1].pk}/?status=failed")
    assert response.context["previous"] == failed[0].pk
    assert response.context["next"] == failed[2].pk
    assert f'href="/trials/{failed[2].pk}/?status=failed"' in response.content.decode()
    last = as_("owner").get(f"/trials/{failed[-1].pk}/?status=failed")
    assert last.context["next"] is None
    assert as_("owner").get(f"/trials/{failed[0].pk}/?status=failed").context["previous"] is None


@pytest.mark.slow
def test_a_trial_links_to_its_repetitions_and_then_to_other_conditions(people, as_):
    models = [factories.make_model("first"), factories.make_model("second")]
    experiment = factories.make_experiment("both", owner=people["owner"], models=models, samples=2)
    trials = [trial for run in factories.make_runs(experiment) for trial in factories.plan_trials(run)]
    key = trials[0].item_id
    of_item = [trial.pk for trial in trials if trial.item_id == key]
    assert len(of_item) == 4
    for before, here, after in zip([None, *of_item], of_item, [*of_item[1:], None], strict=False):
        page = as_("owner").get(f"/trials/{here}/?status=pending")
        assert page.context["same_item"] == {"previous": before, "next": after}
        if after:
            text = " ".join(page.content.decode().split())
            assert f'data-keys="]" aria-keyshortcuts="]" href="/trials/{after}/?status=pending"' in text


@pytest.mark.slow
def test_other_trials_of_an_item_have_the_same_dimension_and_experiment(people, as_):
    dimensions = [factories.make_dimension("valence"), factories.make_dimension("arousal")]
    dataset = factories.make_dataset("shared", items=1)
    made = [
        factories.make_experiment(slug, owner=people[who], dataset=dataset, dimensions=dimensions, samples=2)
        for slug, who in (("mine", "owner"), ("theirs", "researcher"))
    ]
    mine = [trial for run in factories.make_runs(made[0]) for trial in factories.plan_trials(run)]
    for run in factories.make_runs(made[1]):
        factories.plan_trials(run)
    for trial in mine:
        groups = as_("owner").get(f"/trials/{trial.pk}/").context["same_item"].values()
        others = [one.pk for one in mine if one.dimension_id == trial.dimension_id and one.pk != trial.pk]
        assert [pk for pk in groups if pk] == others


@pytest.mark.slow
def test_the_trial_page_has_a_constant_number_of_queries(many, as_):
    client, counts = as_("owner"), set()
    trials = list(Trial.objects.order_by("pk"))
    for trial in (trials[0], trials[len(trials) // 2], trials[-1]):
        with CaptureQueriesContext(connection) as queries:
            client.get(f"/trials/{trial.pk}/")
        counts.add(len(queries))
    assert max(counts) <= min(counts) + 2
    assert max(counts) <= 22


def test_the_link_to_a_trial_carries_the_filter(many, as_):
    response = as_("owner").get(ADDRESS, {"status": "failed", "after": "1"})
    first = get_keys(response)[0]
    assert f'href="/trials/{first}/?status=failed"' in response.content.decode()
