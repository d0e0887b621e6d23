"""Counts by point: equal to the rows, stored once for each state, and marked while incomplete."""

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from grading_app.grading.scoring import grade
from grading_app.models import Grading
from grading_app.results.cached_aggregates import get_aggregate
from grading_app.results.parametric import point_counts
from grading_app.results.parametric.point_counts import POINT_COUNTS, PointQuery, count_points, list_graders, sum_cells
from runs_app.models import Trial
from tests.factories.spaces import make_space_dataset, make_space_experiment

pytestmark = pytest.mark.django_db


def count_at_points(experiment, limit=""):
    rules = list_graders([experiment])[experiment.pk]
    rule = next(one for one in rules if str(one.parameters.get("limit", "")) == limit)
    return count_points(PointQuery(experiment, rule.pk))


def select_by_point(counts, model):
    condition = get_conditions(model)
    return {
        (counts.tasks[cell.point], tuple(sorted(counts.params[cell.point].items()))): cell
        for cell in counts.rows
        if cell.condition == condition
    }


def get_conditions(model):
    return Trial.objects.filter(run__condition__model__name=model).values_list("run__condition", flat=True)[0]


def test_each_cell_has_the_counts_of_its_rows():
    experiment = make_space_experiment()
    counts = count_at_points(experiment)
    assert len(counts.tasks) == 16
    assert len(counts.rows) == 32
    for condition in {cell.condition for cell in counts.rows}:
        for number, (task, params) in enumerate(zip(counts.tasks, counts.params, strict=True)):
            (cell,) = (one for one in counts.rows if (one.condition, one.point) == (condition, number))
            rows = list(
                Grading.objects.filter(
                    trial__run__condition=condition,
                    trial__item__category=task,
                    trial__item__metadata__params=params,
                ).select_related("trial__item")
            )
            scored = [row for row in rows if row.score is not None]
            assert cell.done == len(rows) == 4
            assert cell.correct == sum(row.score for row in scored)
            assert cell.total == len(scored)
            assert cell.truncated == sum(row.detail["truncated"] for row in rows)
            assert cell.guesses == pytest.approx(sum(row.trial.item.metadata["guess_chance"] for row in scored))
            assert cell.output_tokens == sum(row.trial.output_tokens for row in rows)


def test_96_of_128_have_the_published_interval():
    dataset = make_space_dataset(
        count=128,
        text="name: one\nprecision: {p: {count: %d}}\ntasks:\n  - name: brackets\n    params: {length: [4]}\n",
    )
    experiment = make_space_experiment(
        dataset=dataset, models=("m",),
        outcome=lambda item, _: "right" if item.metadata["number"] < 96 else "wrong",
    )  # fmt: skip
    (cell,) = count_at_points(experiment).rows
    interval = sum_cells([cell]).interval(correction="excess_counts")
    assert (cell.correct, cell.total) == (96, 128)
    assert (round(interval.center, 5), round(interval.margin, 5)) == (0.74272, 0.07427)


def test_an_unreadable_answer_is_counted_as_invalid():
    experiment = make_space_experiment(
        outcome=lambda item, _: "unreadable" if item.metadata["number"] == 0 else "right"
    )
    cells = count_at_points(experiment).rows
    assert {(cell.correct, cell.total, cell.invalid) for cell in cells} == {(3, 4, 1)}


def test_a_later_token_limit_counts_long_answers_as_truncated():
    experiment = make_space_experiment(outcome=lambda *_: "right", models=("m",))
    grade(experiment, scorers=["final_answer:100"], by="test")
    cells = select_by_point(count_at_points(experiment, limit="100"), "m")
    for (_, params), cell in cells.items():
        tokens = [20 + 10 * dict(params)["length"] + number for number in range(4)]
        expected = sum(one > 100 for one in tokens)
        assert (cell.truncated, cell.total) == (expected, 4 - expected)
    assert all(cell.truncated == 0 for cell in count_at_points(experiment).rows)


def test_repetitions_of_an_item_reduce_the_effective_number_of_answers():
    experiment = make_space_experiment(
        samples=3, models=("m",), outcome=lambda item, _: "right" if item.metadata["number"] < 2 else "wrong"
    )
    cells = count_at_points(experiment).rows
    assert {(cell.total, cell.items) for cell in cells} == {(12, 4)}
    tally = sum_cells(cells[:1])
    assert 4 <= tally.effective < 6  # Each item's answers are equal, so their effective number is barely above 4.
    assert sum_cells(cells).total == 12 * 16
    assert sum_cells(cells).effective < 100


def test_a_task_is_incomplete_while_a_planned_case_has_no_answer():
    experiment = make_space_experiment(
        models=("m",), outcome=lambda item, _: None if item.category == "swaps" and item.position % 4 == 3 else "right"
    )
    counts = count_at_points(experiment)
    done = {task: sum(cell.done for cell in counts.rows if counts.tasks[cell.point] == task) for task in counts.tasks}
    condition = counts.rows[0].condition
    assert {task: counts.is_incomplete(condition, task, done[task]) for task in counts.task_names} == {
        "brackets": False, "swaps": True,
    }  # fmt: skip


def test_an_adaptive_task_is_incomplete_while_a_point_is_open():
    dataset = make_space_dataset()
    rule = {"by": "category", "targetci": 0.2, "round": 4, "max": 16, "scorer": "final_answer"}
    experiment = make_space_experiment(dataset=dataset, models=("m",), adaptive=rule)
    run = experiment.runs.get()
    for category, status in (("brackets", "enough"), ("swaps", "open")):
        items = list(dataset.items.filter(category=category).values_list("pk", flat=True))
        run.points.create(key={"category": category}, items=items, n_items=len(items), status=status)
    counts = count_at_points(experiment)
    condition = run.condition_id
    assert not counts.is_incomplete(condition, "brackets", 1)
    assert counts.is_incomplete(condition, "swaps", 16)


def test_counts_are_computed_once_for_each_state(settings):
    experiment = make_space_experiment()
    rule = list_graders([experiment])[experiment.pk][0]
    first = get_aggregate(POINT_COUNTS, experiment.pk, PointQuery(experiment, rule.pk)).value
    with CaptureQueriesContext(connection) as queries:
        repeated = get_aggregate(POINT_COUNTS, experiment.pk, PointQuery(experiment, rule.pk)).value
    assert repeated == first
    assert not [query for query in queries if "runs_app_answer" in query["sql"] or "runs_app_trial" in query["sql"]]
    grade(experiment, scorers=["final_answer"], force=True, by="test")
    with CaptureQueriesContext(connection) as queries:
        get_aggregate(POINT_COUNTS, experiment.pk, PointQuery(experiment, rule.pk))
    assert [query for query in queries if "runs_app_answer" in query["sql"]]


def test_a_worker_counts_many_answers(monkeypatch):
    tasks = []
    monkeypatch.setattr("django_q.tasks.async_task", lambda *arguments: tasks.append(arguments))
    monkeypatch.setattr(point_counts, "MAX_ANSWERS_PER_REQUEST", 0)
    experiment = make_space_experiment()
    rule = list_graders([experiment])[experiment.pk][0]
    query = PointQuery(experiment, rule.pk, answers=10)
    assert get_aggregate(POINT_COUNTS, experiment.pk, query).value is None
    from grading_app.tasks import compute_aggregates

    for _, keys in tasks:
        compute_aggregates(keys)
    stored = get_aggregate(POINT_COUNTS, experiment.pk, query)
    assert stored.value == count_points(query)
    assert stored.value.rows == count_points(query).rows  # A stored mapping has a different order of names.
    assert stored.is_fresh
