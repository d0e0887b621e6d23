"""Results are computed with the planner's statistics of their rows, also before autovacuum has seen a new site."""

import pytest

from evalsite.lib.sql import analyze_grown_tables, fetch_rows
from grading_app.grading.scoring import grade
from grading_app.results.raters.judge_checks import SCORE_PAIRS
from grading_app.tasks import compute_aggregates, store_results
from tests import factories

ANSWERS = 300


@pytest.fixture
def graded(transactional_db):
    experiment = factories.make_experiment(
        "new", dataset=factories.make_dataset("texts", ANSWERS), scorers=["exact_match", "set_match"]
    )
    for run in factories.make_runs(experiment, status="done"):
        factories.plan_trials(run, answer=lambda item, *_: {"answer": item.target if item.position % 3 else "x"})
    grade(experiment, by="test")
    fetch_rows("SELECT pg_stat_force_next_flush()")  # Else PostgreSQL counts the new rows up to a second later.
    return experiment


def read_statistics(table):
    ((rows, analyses),) = fetch_rows(
        """SELECT c.reltuples, s.analyze_count FROM pg_class c JOIN pg_stat_user_tables s ON s.relid = c.oid
        WHERE c.oid = %s::regclass""",
        [table],
    )
    return rows, analyses


def count_compared_in_vain(plan):
    """Return how many pairs of rows a plan and its parts compared and dropped."""
    own = plan.get("Rows Removed by Join Filter", 0) * plan["Actual Loops"]
    return own + sum(count_compared_in_vain(part) for part in plan.get("Plans", ()))


def pair_scores(experiment):
    """Return the pairs that PostgreSQL compares in vain to find two rules' scores of the same answers."""
    first, second = experiment.grade_conditions.order_by("pk")
    names = {"experiment": experiment.pk, "kind": "rule", "judge": first.pk}
    (((explained,),),) = fetch_rows(
        "EXPLAIN (ANALYZE, FORMAT JSON) " + SCORE_PAIRS, {**names, "reference_kind": "rule", "reference": second.pk}
    )
    return count_compared_in_vain(explained["Plan"])


@pytest.mark.parametrize("compute", [store_results, lambda experiment: compute_aggregates([])])
def test_scores_of_a_new_site_are_not_compared_each_with_all_others(graded, compute):
    compute(graded)
    assert read_statistics("runs_app_trial")[0] == ANSWERS
    assert read_statistics("grading_app_grading")[0] == 2 * ANSWERS
    assert pair_scores(graded) < ANSWERS


def test_tables_that_have_not_doubled_are_not_read_again(graded):
    analyze_grown_tables()
    fetch_rows("SELECT pg_stat_force_next_flush()")
    before = read_statistics("runs_app_trial")
    analyze_grown_tables()
    assert read_statistics("runs_app_trial") == before
