"""`sort=` and `column=` accept any value: the status is 200 or 404, and unknown values change nothing."""

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from grading_app.grading.scoring import grade
from runs_app.models import Condition
from tests import factories
from tests.factories.spaces import make_space_experiment
from tests.system.fuzz.hostile import NUMBERS, TEXTS

COLUMNS = ("rating", "item", "id", "cost_usd", "score", "numeric", "mean", "condition", "difficulty", "reason_score")
NEAR = [f"{sign}{name}{end}" for name in COLUMNS for sign, end in (("--", ""), ("", "_"), ("-", " "), ("+", "__gt"))]
KEYS = ["score_0", "score_-1", "score_" + "9" * 30, "score_1", "score_٣", "-score_", "-", "~", "run__condition__model"]
ANY = st.one_of(
    st.text(st.characters(exclude_categories=("Cs",), exclude_characters="\x00"), max_size=20),
    st.sampled_from(NEAR + KEYS),
    st.sampled_from([text for text in NUMBERS + TEXTS if text.isprintable() and len(text) < 200]),
)
"""A NUL has its own answer, 400, and an address holds no lone surrogate."""
quickly = settings(
    max_examples=8, deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)  # fmt: skip


@pytest.fixture
def reader(client, db):
    experiment = factories.make_experiment(
        "sums", dataset=factories.make_dataset("sums", 3), models=[factories.make_model(name) for name in "ab"],
        scorers=["numeric"],
    )  # fmt: skip
    for run in factories.make_runs(experiment, status="done"):
        factories.plan_trials(run, answer=lambda item, *_: item.target)
    grade(experiment, by="test")
    make_space_experiment(owner=experiment.owner)
    client.force_login(experiment.owner)
    return client


@pytest.fixture
def usual_list(reader):
    context = reader.get("/trials/", {"experiment": "sums"}).context
    return context["page"].keys, context["table"].shown, {name for name, _ in context["table"].offered}


@quickly
@example("-")
@example("score_1")
@given(value=ANY)
def test_an_unknown_sort_or_column_does_not_change_the_list_of_trials(reader, usual_list, value):
    answer = reader.get("/trials/", {"experiment": "sums", "sort": value, "column": value})
    keys, shown, known_columns = usual_list
    assert answer.status_code == 200
    assert sorted(answer.context["page"].keys) == keys
    if value.removeprefix("-") not in known_columns:
        assert answer.context["page"].keys == keys
        assert answer.context["table"].shown == shown


@quickly
@example("-mean")
@given(value=ANY)
def test_results_matrix_compare_and_leaderboard_accept_any_sort_and_column(reader, value):
    first, second = Condition.objects.filter(experiment__slug="sums").order_by("pk").values_list("pk", flat=True)
    hostile = {"sort": value, "column": value}
    board = reader.get("/experiments/sums/results/", hostile)
    assert board.status_code == 200
    assert {row.condition for row in board.context["results"].board.rows} == {first, second}
    sides = {"a": f"sums:{first}", "b": f"sums:{second}"}
    for address, query in {"/experiments/sums/matrix/": {}, "/compare/": sides, "/leaderboard/": {}}.items():
        assert reader.get(address, {**query, **hostile}).status_code in (200, 404), address
