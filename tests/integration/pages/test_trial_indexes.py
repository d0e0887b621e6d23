"""Pages over many trials use indexes; no query plan scans the table."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from tests import factories

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


@pytest.fixture
def runs_of_sixty_thousand_trials(people):
    models = [factories.make_model(f"m{number}") for number in range(RUNS)]
    experiment = factories.make_experiment(
        "large", owner=people["owner"], dataset=factories.make_dataset("large", ITEMS), models=models,
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
