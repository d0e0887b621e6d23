"""Pages over many trials use indexes; no query plan scans the table."""

import re

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from runs_app.trial_list.trial_pagination import NEAR, PAGE
from tests import factories
from tests.factories.gradings import make_answered_experiment, make_gradings
from tests.shared_rows import shared_rows

RUNS, ITEMS, SAMPLES = 6, 200, 50

QUERIES = [
    "", "experiment=large", "status=failed", "status=running", "error=timeout", "error=none", "item=item-7",
    "item=item-7&rating=3", "sort=-item", "sort=status", "sort=-id", "status=done&sort=item", "flag=true",
]  # fmt: skip

FILL = """
INSERT INTO runs_app_trial (run_id, item_id, sample_idx, status, attempts, rating, answer, error_class)
SELECT %(run)s, item.id, sample_idx, CASE WHEN item.id %% 40 = 0 THEN 'failed' ELSE 'done' END, 1, 1 + item.id %% 7,
    repeat('It was thought about. ', 10), CASE WHEN item.id %% 40 = 0 THEN 'timeout' ELSE '' END
FROM generate_series(0, %(samples)s - 1) AS sample_idx CROSS JOIN datasets_app_item AS item
ORDER BY sample_idx, item.id
"""


@shared_rows
def runs_of_sixty_thousand_trials(people_of_file):
    models = [factories.make_model(f"m{number}") for number in range(RUNS)]
    experiment = factories.make_experiment(
        "large", owner=people_of_file["owner"], dataset=factories.make_dataset("large", ITEMS), models=models,
        samples=SAMPLES, sharing="group", status="active",
    )  # fmt: skip
    runs = factories.make_runs(experiment, status="done")
    with connection.cursor() as cursor:
        for run in runs:
            cursor.execute(FILL, {"run": run.pk, "samples": SAMPLES})
        cursor.execute("ANALYZE")
    return runs


def iterate_plans(client, address):
    """Iterate over the plans of this page's queries on trials."""
    with CaptureQueriesContext(connection) as queries:
        assert client.get(address).status_code == 200
    statements = [query["sql"] for query in queries if "runs_app_trial" in query["sql"]]
    with connection.cursor() as cursor:
        for sql in statements:
            cursor.execute(f"EXPLAIN {sql}")
            yield "\n".join(line for (line,) in cursor.fetchall())


@pytest.mark.slow
def test_no_page_of_trials_scans_the_table(runs_of_sixty_thousand_trials, as_):
    run, client = runs_of_sixty_thousand_trials[3], as_("viewer")
    middle = run.trials.order_by("pk")[500].pk
    deep = [
        f"sort=status&after=done~{middle}",
        f"sort=-item&after={runs_of_sixty_thousand_trials[3].trials.first().item_id}~{middle}",
    ]
    for query in [*QUERIES, *deep, f"after={middle}", f"before={middle}", f"run={run.pk}&error=timeout&after={middle}"]:
        for plan in iterate_plans(client, f"/trials/?{query}"):
            assert "Seq Scan on runs_app_trial" not in plan, f"{query}\n{plan}"


@pytest.mark.parametrize(
    ("query", "index"),
    [("item=item-7", "trial_identity"), ("sort=-item", "trial_identity"), ("truncated=true", "trial_unusable")],
)
def test_searches_and_counts_read_no_rows_but_those_of_the_page(runs_of_sixty_thousand_trials, as_, query, index):
    """Plans are those of large tables: the few pages of these would be read as a whole."""
    with connection.cursor() as cursor:
        cursor.execute("SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off")
    plans = [plan for plan in iterate_plans(as_("viewer"), f"/trials/?{query}") if index in plan]
    assert plans
    for plan in plans:
        scans = re.findall(rf"(Index.* Scan)(?: Backward)? using {index}", plan)
        assert scans == ["Index Only Scan"] * plan.count(index)


@pytest.mark.slow
def test_a_list_of_all_trials_reads_only_the_nearest_keys(runs_of_sixty_thousand_trials, as_):
    middle = runs_of_sixty_thousand_trials[3].trials.order_by("pk")[500].pk
    for query in ("", f"after={middle}", f"before={middle}", "sort=-id"):
        with CaptureQueriesContext(connection) as queries:
            assert as_("viewer").get(f"/trials/?{query}").status_code == 200
        (keys,) = [query["sql"] for query in queries if "AS near" in query["sql"]]
        assert not [query["sql"] for query in queries if "unnest" in query["sql"]], query
        assert count_trials_read(keys) <= 2 * NEAR * (PAGE + 1), query


@pytest.mark.slow
def test_the_matrix_reads_only_the_answers_it_shows(runs_of_sixty_thousand_trials, people, as_):
    """The statistics of the table are older than these runs, so that the planner expects few trials of them."""
    experiment = make_answered_experiment("study", owner=people["owner"], items=100, models=["small"], samples=20)
    make_gradings(experiment, "exact", lambda trial: float(trial.item.position % 2), kind="rule")
    with CaptureQueriesContext(connection) as queries:
        assert as_("owner").get("/experiments/study/matrix/").status_code == 200
    (cells,) = [query["sql"] for query in queries if "array_agg(score)" in query["sql"]]
    assert count_trials_read(cells) == 50 * 20


def count_trials_read(sql):
    """Execute the query. Return the number of trials that its scans read, whether they match or not."""
    with connection.cursor() as cursor:
        cursor.execute(f"EXPLAIN (ANALYZE, TIMING OFF, FORMAT JSON) {sql}")
        ((plan,),) = cursor.fetchall()
    scans = [node for node in iterate_nodes(plan[0]["Plan"]) if node.get("Relation Name") == "runs_app_trial"]
    return sum((scan["Actual Rows"] + scan.get("Rows Removed by Filter", 0)) * scan["Actual Loops"] for scan in scans)


def iterate_nodes(node):
    yield node
    for child in node.get("Plans", []):
        yield from iterate_nodes(child)


@pytest.mark.slow
def test_a_trial_and_its_neighbours_are_found_by_index(runs_of_sixty_thousand_trials, as_):
    middle = runs_of_sixty_thousand_trials[3].trials.order_by("pk")[500].pk
    for query in ("", "status=failed", "item=item-7", "contains=nowhere"):
        for plan in iterate_plans(as_("viewer"), f"/trials/{middle}/?{query}"):
            assert "Seq Scan on runs_app_trial" not in plan, f"{query}\n{plan}"


def test_the_trials_of_one_item_are_found_by_index(runs_of_sixty_thousand_trials, as_):
    """The trial has earlier and later repetitions, and the item has earlier and later runs."""
    trial = runs_of_sixty_thousand_trials[3].trials.order_by("pk")[500]
    page = as_("viewer").get(f"/trials/{trial.pk}/")
    around = runs_of_sixty_thousand_trials[3].trials.filter(item=trial.item_id).order_by("pk")
    assert page.context["same_item"] == {
        "previous": around.filter(pk__lt=trial.pk).last().pk,
        "next": around.filter(pk__gt=trial.pk).first().pk,
    }


def test_a_word_search_reads_only_one_key_range(runs_of_sixty_thousand_trials, as_, monkeypatch):
    monkeypatch.setattr("runs_app.trial_list.trial_pagination.SEARCHED", 1000)
    response = as_("viewer").get("/trials/?contains=nowhere")
    first = runs_of_sixty_thousand_trials[0].trials.order_by("pk").first().pk
    assert response.context["page"].searched_to == first + 999
