"""The list of trials sorts by its headers; chips remove filters; the URL contains the columns."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from grading_app.grading.scoring import grade
from grading_app.views.filters import TrialFilter
from runs_app.models import Trial
from runs_app.models.annotations import annotate
from runs_app.trial_list import trial_order, trial_pagination
from tests import factories
from tests.page_text import page_text
from tests.shared_rows import shared_rows

ADDRESS = "/trials/"


@shared_rows
def sums(people_of_file):
    """Return two conditions on six items with two samples: ratings repeat, one trial failed, costs differ."""
    experiment = factories.make_experiment(
        "sums", owner=people_of_file["owner"], dataset=factories.make_dataset("sums", 6), samples=2,
        scorers=["numeric"], models=[factories.make_model("a"), factories.make_model("b")], status="active",
    )  # fmt: skip
    for number, run in enumerate(factories.make_runs(experiment, status="done")):
        factories.plan_trials(run, answer=lambda item, _, index, number=number: make_outcome(item, index, number))
    grade(experiment, by="test")
    return experiment


def make_outcome(item, index, number):
    if item.position == 4 and index:
        return factories.build_failed_fields("timeout")
    is_right = (item.position + number) % 3 != 0
    return {"answer": f"{item.target if is_right else 99}" + " !" * item.position, "cost_usd": f"0.{item.position % 3}",
            "rating": 1 + (item.position * 2 + number) % 5, "latency_ms": 100 * (7 - item.position)}  # fmt: skip


def walk_pages(client, query, *, back=False):
    keys_seen, current_query = [], query
    for _ in range(60):
        response = client.get(f"{ADDRESS}?{current_query}")
        keys = response.context["page"].keys
        keys_seen = keys + keys_seen if back else keys_seen + keys
        url = response.context["previous_url" if back else "next_url"]
        if not url:
            return keys_seen, current_query
        current_query = url.removeprefix("?")
    raise AssertionError("the pages do not end")


def sort_keys(trials, value, *, descending):
    """Return the keys of trials sorted in Python: missing values last, equal values by key."""
    present = [trial for trial in trials if value(trial) is not None]
    missing = [trial for trial in trials if value(trial) is None]
    present.sort(key=lambda trial: (value(trial), trial.pk), reverse=descending)
    missing.sort(key=lambda trial: trial.pk, reverse=descending)
    return [trial.pk for trial in present + missing]


VALUES = {
    "id": lambda trial: trial.pk,
    "item": lambda trial: trial.item_id,
    "status": lambda trial: trial.status,
    "sample_idx": lambda trial: trial.sample_idx,
    "rating": lambda trial: trial.rating,
    "cost_usd": lambda trial: trial.cost_usd,
    "latency": lambda trial: trial.latency_ms,
    "length": lambda trial: len(trial.answer),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", VALUES)
def test_sorted_pages_contain_every_trial_once(sums, as_, monkeypatch, name):
    monkeypatch.setattr(trial_order, "PAGE", 9)
    monkeypatch.setattr(trial_pagination, "PAGE", 9)
    for sort in (name, f"-{name}"):
        expected = sort_keys(list(Trial.objects.all()), VALUES[name], descending=sort != name)
        keys_seen, last = walk_pages(as_("owner"), f"experiment=sums&sort={sort}")
        assert keys_seen == expected, sort
        assert walk_pages(as_("owner"), last, back=True)[0] == expected, sort


@pytest.mark.slow
def test_trials_can_be_sorted_by_a_graders_scores(sums, as_, monkeypatch):
    monkeypatch.setattr(trial_order, "PAGE", 5)
    grader = sums.grade_conditions.get()
    scores = dict(grader.gradings.values_list("trial", "score"))
    expected = sort_keys(list(Trial.objects.all()), lambda trial: scores.get(trial.pk), descending=False)
    assert walk_pages(as_("owner"), f"experiment=sums&sort=score_{grader.pk}")[0] == expected


def test_filters_apply_to_a_sorted_list(sums, as_):
    found_keys, _ = walk_pages(as_("owner"), "experiment=sums&status=done&category=even&sort=-rating")
    rows = Trial.objects.filter(status="done", item__category="even")
    assert found_keys == sort_keys(list(rows), VALUES["rating"], descending=True)


@pytest.mark.slow
def test_next_and_previous_of_a_trial_follow_the_order(sums, as_):
    keys, _ = walk_pages(as_("owner"), "experiment=sums&sort=-rating")
    at = keys[7]
    page = as_("owner").get(reverse("trial_detail", args=[at]) + "?experiment=sums&sort=-rating")
    assert (page.context["previous"], page.context["next"]) == (keys[6], keys[8])
    newest = as_("owner").get(reverse("trial_detail", args=[max(keys)]) + "?experiment=sums&sort=-id")
    assert (newest.context["previous"], newest.context["next"]) == (None, sorted(keys)[-2])


def test_a_header_sorts_and_begins_at_the_first_page(sums, as_):
    text = as_("owner").get(f"{ADDRESS}?experiment=sums&sort=rating&after=3.0~9").content.decode()
    assert 'href="?experiment=sums&amp;sort=-rating"' in text
    assert 'aria-sort="ascending"' in text


def test_an_order_without_an_index_is_offered_for_few_trials_only(sums, as_, monkeypatch):
    monkeypatch.setattr("grading_app.views.trials.MAX_SORTED", 10)
    monkeypatch.setattr(trial_order, "MAX_SORTED", 10)
    response = as_("owner").get(f"{ADDRESS}?experiment=sums&sort=rating")
    assert response.context["page"].keys == sorted(response.context["page"].keys)
    text = page_text(response)
    assert "Not sorted by Rating." in text
    assert "other columns sort at most 10 trials" in text
    assert "sort=-rating" not in text
    assert "sort=item" in text
    by_item = as_("owner").get(f"{ADDRESS}?experiment=sums&sort=-item").context["page"].keys
    assert by_item == sort_keys(list(Trial.objects.all()), VALUES["item"], descending=True)


def test_a_list_too_large_for_an_order_says_which_filters_make_it_small_enough(sums, as_, monkeypatch):
    monkeypatch.setattr("grading_app.views.trials.MAX_SORTED", 12)
    monkeypatch.setattr(trial_order, "MAX_SORTED", 12)
    client = as_("owner")
    response = client.get(f"{ADDRESS}?experiment=sums&sort=-cost_usd&after=3")
    choices = [(one["label"].split(" / ")[0], one["trials"]) for one in response.context["narrower"]]
    assert choices == [("Failed", 2), ("a", 12), ("b", 12)]
    for one in response.context["narrower"]:
        assert f'href="?{one["query"].replace("&", "&amp;")}"' in response.content.decode()
        narrowed = client.get(f"{ADDRESS}?{one['query']}")
        assert narrowed.context["page"].keys == sort_keys(
            list(Trial.objects.filter(pk__in=narrowed.context["page"].keys)), VALUES["cost_usd"], descending=True
        )
        assert len(narrowed.context["page"].keys) == one["trials"]
        assert "narrower" not in narrowed.context
    of_all = client.get(f"{ADDRESS}?sort=item")
    assert of_all.context["unsorted"] == ""
    assert [one["label"] for one in of_all.context["narrower"]] == ["Failed"]


@pytest.mark.slow
def test_an_invalid_cursor_is_ignored(sums, as_):
    client = as_("owner")
    for cursor in ("x", "~", "nan~3", "1~-1", "1~99999999999999999999", "inf~1", "1e400~1", "1.5~1"):
        for sort in ("rating", "-item", "status", "score_1", "nothing", "-"):
            answer = client.get(ADDRESS, {"experiment": "sums", "sort": sort, "after": cursor})
            assert answer.status_code == 200, (cursor, sort)


@pytest.mark.slow
def test_every_list_says_how_many_trials_match(sums, as_):
    for query, label in (
        ("experiment=sums", "24 trials"),
        ("experiment=sums&category=even", "12 trials"),
        ("item=item-1", "4 trials"),
        ("contains=99", f"{Trial.objects.filter(answer__contains='99').count()} trials"),
        ("experiment=sums&error=timeout", "2 trials"),
    ):
        assert as_("owner").get(f"{ADDRESS}?{query}").context["count_label"] == label, query


def test_a_list_too_large_to_count_states_its_upper_bound(sums, as_, monkeypatch):
    monkeypatch.setattr("grading_app.views.trials.MAX_SORTED", 10)
    monkeypatch.setattr(trial_order, "MAX_SORTED", 10)
    client = as_("owner")
    with CaptureQueriesContext(connection) as queries:
        response = client.get(f"{ADDRESS}?experiment=sums&contains=99")
    assert response.context["count_label"] == "among 24 trials"
    count_queries = [query["sql"] for query in queries if "COUNT(" in query["sql"] and "runs_app_trial" in query["sql"]]
    assert count_queries == []


def test_each_filter_has_a_chip_that_removes_it(sums, as_):
    response = as_("owner").get(f"{ADDRESS}?experiment=sums&status=done&category=even&sort=rating&after=1.0~1")
    chips = {chip.label: (chip.text, chip.url) for chip in response.context["chips"]}
    assert chips["Status"] == ("Done", "?experiment=sums&category=even&sort=rating")
    assert chips["Experiment"][0] == "sums"
    assert chips["Category"] == ("even", "?experiment=sums&status=done&sort=rating")
    assert page_text(response).count("Remove this filter") == 3


def test_a_chip_shows_a_score_as_its_choice_does(sums, as_):
    for typed, shown in (("0", "0 (wrong)"), ("0.5", "0.5"), ("1.0", "1 (right)")):
        chips = as_("owner").get(f"{ADDRESS}?experiment=sums&score={typed}").context["chips"]
        assert {chip.label: chip.text for chip in chips}["Score"] == shown


def test_rare_filters_are_folded_unless_one_of_them_is_used(sums, as_):
    client = as_("owner")
    assert '<details class="more-filters">' in page_text(client.get(f"{ADDRESS}?experiment=sums&status=done"))
    for query in ("error=timeout", "truncated=true", "rating=x"):
        page = page_text(client.get(f"{ADDRESS}?experiment=sums&{query}"))
        assert '<details class="more-filters" open>' in page, query
        for name in TrialFilter.base_filters:
            assert page.partition('role="search"')[2].partition("</form>")[0].count(f'name="{name}"') == 1, name


def test_the_address_holds_the_chosen_columns(sums, as_):
    shown = as_("owner").get(f"{ADDRESS}?experiment=sums&column=target&column=latency&status=done")
    names = [column.name for column in shown.context["table"].columns]
    assert names == ["id", "target", "latency"]
    text = page_text(shown)
    assert '<input type="hidden" name="column" value="latency">' in text
    assert '<input type="hidden" name="status" value="done">' in text
    usual = [column.name for column in as_("owner").get(f"{ADDRESS}?experiment=sums").context["table"].columns]
    grader = sums.grade_conditions.get()
    assert f"score_{grader.pk}" in usual
    assert "target" not in usual
    assert "notes" not in usual


@pytest.mark.slow
def test_notes_flags_and_tags_are_filters_and_a_column(sums, as_, people):
    first, second, third = Trial.objects.order_by("pk")[:3]
    annotate(first, "flag", "Wrong", by=people["owner"])
    annotate(first, "tag", "off-by-one", by=people["owner"])
    annotate(second, "note", "The 100 % case", by=people["owner"])
    annotate(third.item, "flag", "Ambiguous", by=people["owner"])
    of_third = set(Trial.objects.filter(item=third.item).values_list("pk", flat=True))
    client = as_("owner")
    for query, found_keys in (
        ("flag=true", {first.pk} | of_third),
        ("tag=Off+by+ONE", {first.pk}),
        ("flag=true&tag=off-by-one", {first.pk}),
        ("note=100 %25", {second.pk}),
        ("note=case&flag=true", {second.pk} & of_third),
        ("flag=true&item=nowhere", set()),
        ("flag=true&status=failed", set(Trial.objects.filter(pk__in=of_third, status="failed").values_list("pk"))),
    ):
        assert set(walk_pages(client, f"experiment=sums&{query}")[0]) == found_keys, query
    others = set(walk_pages(client, "experiment=sums&flag=false")[0])
    assert others == set(Trial.objects.values_list("pk", flat=True)) - {first.pk} - of_third
    text = page_text(client.get(f"{ADDRESS}?experiment=sums"))
    assert 'title="Wrong"' in text
    assert ">off-by-one</span>" in text
    assert client.get(f"{ADDRESS}?flag=true&sort=-rating").context["count_label"] == f"{1 + len(of_third)} trials"


def test_trials_of_items_that_differ_between_conditions(sums, as_):
    found_keys = set(walk_pages(as_("owner"), "experiment=sums&differs=true")[0])
    scores = {}
    for grading in sums.grade_conditions.get().gradings.select_related("trial__run"):
        scores.setdefault(grading.trial.item_id, {}).setdefault(grading.trial.run_id, []).append(grading.score)
    means = {item: {sum(some) / len(some) for some in runs.values()} for item, runs in scores.items()}
    expected = {item for item, found_means in means.items() if len(found_means) > 1}
    assert 0 < len(expected) < 6
    assert found_keys == set(Trial.objects.filter(item__in=expected).values_list("pk", flat=True))
    refused = as_("owner").get(f"{ADDRESS}?differs=true")
    assert "Choose an experiment to compare its conditions." in page_text(refused)
    assert refused.context["page"].keys == []


def test_many_items_that_differ_are_searched_for(sums, as_, monkeypatch):
    few = set(walk_pages(as_("owner"), "experiment=sums&differs=true")[0])
    monkeypatch.setattr("grading_app.views.filters.MAX_INDEXED_ITEMS", 0)
    assert set(walk_pages(as_("owner"), "experiment=sums&differs=true")[0]) == few


@pytest.mark.slow
def test_the_number_of_queries_is_constant_in_any_order(sums, as_, monkeypatch):
    client = as_("owner")
    client.get(f"{ADDRESS}?experiment=sums&differs=true")  # The scores are summed once.
    for query in ("sort=-rating", "sort=item", "flag=true", "differs=true", "disagree=true"):
        counts = set()
        for size in (1, 20):
            monkeypatch.setattr(trial_order, "PAGE", size)
            monkeypatch.setattr(trial_pagination, "PAGE", size)
            with CaptureQueriesContext(connection) as queries:
                client.get(f"{ADDRESS}?experiment=sums&{query}")
            counts.add(len(queries))
        assert len(counts) == 1, (query, counts)


def test_the_first_trials_of_each_run_are_merged_by_the_database(sums):
    search = trial_pagination.Search(runs=sums.runs.all())
    order = trial_order.read_order("-item", [])
    with CaptureQueriesContext(connection) as queries:
        page = trial_order.find_ordered(search, order, size=5)
    assert len(queries) == 1
    assert page.keys == sort_keys(Trial.objects.filter(run__in=sums.runs.all()), VALUES["item"], descending=True)[:5]


@shared_rows
def waves(people_of_file):
    """Return twelve runs on four items, most of them with few trials: more runs than a page has trials."""
    experiment = factories.make_experiment(
        "waves", owner=people_of_file["owner"], dataset=factories.make_dataset("waves", 4),
        models=[factories.make_model(name) for name in "abc"], status="active",
    )  # fmt: skip
    for wave in range(4):
        for number, run in enumerate(factories.make_runs(experiment, wave=wave, status="done")):
            factories.plan_trials(
                run, answer=lambda item, *_, wave=wave, number=number: make_sparse_outcome(item, wave, number)
            )
    return experiment


def make_sparse_outcome(item, wave, number):
    kind = (3 * item.position + 5 * wave + 7 * number) % 4
    return (None, {"answer": "Paris"}, factories.build_failed_fields("timeout"), {"answer": ""})[kind]


def walk_keys(find_page):
    """Return the keys of all pages forward, and of all pages back from the last one."""
    forward, page = [], find_page()
    forward += page.keys
    while page.after is not None:
        page = find_page(after=page.after)
        forward += page.keys
    back = page.keys
    while page.before is not None:
        page = find_page(before=page.before)
        back = page.keys + back
    return forward, back


@pytest.mark.parametrize("status", ["", "failed"])
@pytest.mark.parametrize("descending", [False, True])
@pytest.mark.parametrize("near", [1, 2, trial_pagination.NEAR])
def test_small_pages_over_many_runs_contain_every_trial_in_order(waves, status, descending, near, monkeypatch):
    monkeypatch.setattr(trial_pagination, "NEAR", near)
    search = trial_pagination.Search(runs=waves.runs.all(), status=status)
    found = Trial.objects.filter(run__in=waves.runs.all(), **({"status": status} if status else {}))
    for name in ("item", "status"):
        order = trial_order.TrialOrder(name, descending, trial_order.INDEXED[name])

        def find_page(order=order, **cursors):
            parsed = {side: order.parse_cursor(text) for side, text in cursors.items()}
            return trial_order.find_ordered(search, order, size=3, **parsed)

        expected = sort_keys(found, VALUES[name], descending=descending)
        assert walk_keys(find_page) == (expected, expected)
    find = search.find_descending if descending else search.find
    expected = sort_keys(found, VALUES["id"], descending=descending)
    assert walk_keys(lambda **cursors: find(size=3, **cursors)) == (expected, expected)
