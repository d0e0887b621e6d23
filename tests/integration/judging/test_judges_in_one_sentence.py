"""Judges in one sentence: agreement with a reference, its direction, and a preference for the judge's own family."""

import html
import re
from urllib.parse import parse_qs, urlsplit

import numpy as np
import pytest
from django.urls import reverse
from scipy import stats

from grading_app.models import GradeCondition
from grading_app.results.raters.judge_checks import JUDGE_CHECKS, check_judges
from tests import factories
from tests.factories.gradings import list_generated_trials, make_answered_experiment, make_gradings, make_scale_rubric
from tests.factories.judges import make_grader
from tests.shared_rows import shared_rows

ITEMS = 24


def right(trial):
    return float(trial.item.position % 3 > 0)


def judged(trial):
    """Say wrong for five right answers, and right for three wrong ones. All errors favour the large model."""
    position, is_large = trial.item.position, trial.run.condition.model.name == "gpt-large"
    if is_large and position in (0, 3, 6):
        return 1.0
    if not is_large and position in (1, 2, 4, 5, 7):
        return 0.0
    return right(trial)


@shared_rows
def experiment():
    return make_answered_experiment(items=ITEMS, models=("gpt-large", "llama-small"))


def add_judge(experiment, score=judged, name="strict", model="gpt-judge", low=0, high=1):
    rubric = make_scale_rubric(f"{name}-rubric", low=low, high=high)
    condition = make_gradings(experiment, name, score, rubric=rubric)
    grader = make_grader(name, rubric=rubric, model=factories.make_model(model))
    solver = experiment.conditions.first()
    call = experiment.conditions.create(
        stage="judge", condition_id=f"{name}--000000000001", model=grader.language_model, prompt=solver.prompt,
        sampler=solver.sampler, content={},
    )  # fmt: skip
    GradeCondition.objects.filter(pk=condition.pk).update(grader=grader, judge_condition=call)
    return GradeCondition.objects.get(pk=condition.pk)


def find_check(experiment, judge):
    among = list(experiment.grade_conditions.order_by("pk"))
    return check_judges([judge], among)[judge.pk].checks


def test_the_sentence_states_what_an_independent_computation_finds(experiment):
    make_gradings(experiment, "exact_match", right, kind="rule")
    judge = add_judge(experiment)
    (check,) = find_check(experiment, judge)

    trials = list_generated_trials(experiment)
    said, true = (np.array([score(trial) for trial in trials]) for score in (judged, right))
    items = np.array([trial.item_id for trial in trials])
    own = np.array([trial.run.condition.model.name == "gpt-large" for trial in trials])
    assert (check.n, check.same) == (len(trials), int((said == true).sum())) == (48, 40)
    assert (check.too_low, check.too_high) == (int((said < true).sum()), int((said > true).sum())) == (5, 3)
    assert check.difference == pytest.approx((said - true).mean())
    table = stats.contingency.crosstab(true, said, levels=([0.0, 1.0], [0.0, 1.0])).count
    assert {(row, column): n for row, column, n in check.cells} == {
        (float(row), float(column)): int(table[row, column])
        for row in (0, 1)
        for column in (0, 1)
        if table[row, column]
    }
    gaps = [
        (said - true)[(items == item) & own].mean() - (said - true)[(items == item) & ~own].mean()
        for item in np.unique(items)
    ]
    assert check.preference.difference == pytest.approx(np.mean(gaps))
    half = stats.t.ppf(0.975, ITEMS - 1) * stats.sem(gaps)
    assert check.preference.low == pytest.approx(np.mean(gaps) - half)
    assert check.preference.high == pytest.approx(np.mean(gaps) + half)
    assert check.preference.is_seen

    sentence = check.describe("strict")
    assert sentence.startswith("strict agrees with Exact match on 40 of 48 (83.3 %, "), sentence
    assert "5 too strict, 3 too lenient; it prefers its own family (33.3 pp, " in sentence


def test_the_interval_of_agreement_is_clustered_by_item(experiment):
    make_gradings(experiment, "exact_match", right, kind="rule")
    (check,) = find_check(experiment, add_judge(experiment))
    same = np.array([judged(trial) == right(trial) for trial in list_generated_trials(experiment)], float)
    per_item = same.reshape(2, ITEMS)  # Trials are in the order of runs, then of items.
    residuals = (per_item - same.mean()).sum(axis=0)
    variance = ITEMS / (ITEMS - 1) * (residuals**2).sum() / len(same) ** 2
    effective = min(len(same), same.mean() * (1 - same.mean()) / variance)
    t = stats.t.ppf(0.975, ITEMS - 1)
    p = same.mean()
    n = effective
    centre, margin = p + t * t / (2 * n), t * np.sqrt(p * (1 - p) / n + t * t / (4 * n * n))
    assert check.low == pytest.approx((centre - margin) / (1 + t * t / n), abs=0.02)
    assert check.high == pytest.approx((centre + margin) / (1 + t * t / n), abs=0.02)


def test_without_a_preference_the_sentence_says_that_none_was_seen(experiment):
    make_gradings(experiment, "exact_match", right, kind="rule")
    (check,) = find_check(experiment, add_judge(experiment, lambda trial: float(trial.item.position % 4 > 0)))
    assert "no preference for its own family seen on any of 24 items." in check.describe("strict")


def test_a_judge_without_relatives_has_no_preference_to_see(experiment):
    make_gradings(experiment, "exact_match", right, kind="rule")
    (check,) = find_check(experiment, add_judge(experiment, model="claude-judge"))
    assert check.describe("strict").endswith("; no model of its own family answers here.")


def test_scores_on_another_scale_are_not_compared(experiment):
    make_gradings(experiment, "exact_match", right, kind="rule")
    assert find_check(experiment, add_judge(experiment, lambda trial: 7.0, low=0, high=10)) == ()


def list_trials_on_pages(client, address):
    """Return the keys of the trials on all pages of a list."""
    page = client.get(address).context["page"]
    keys = set(page.keys)
    while page.after is not None:
        page = client.get(f"{address}&after={page.after}").context["page"]
        keys |= set(page.keys)
    return keys


def test_each_cell_links_to_exactly_its_answers(client, experiment):
    make_gradings(experiment, "exact_match", right, kind="rule")
    judge = add_judge(experiment)
    client.force_login(experiment.owner)
    page = client.get(reverse("experiment_grading", args=[experiment.slug]))
    (shown,) = (row["checks"] for row in page.context["rows"] if row["checks"])
    assert "strict agrees with Exact match on 40 of 48" in page.content.decode()
    trials = list_generated_trials(experiment)
    for name, cells in shown.checks[0].rows:
        for cell, said in zip(cells, (0.0, 1.0), strict=True):
            true = {"wrong": 0.0, "right": 1.0}[name]
            expected = {trial.pk for trial in trials if (judged(trial), right(trial)) == (said, true)}
            assert cell.n == len(expected)
            assert list_trials_on_pages(client, cell.address) == expected
            query = parse_qs(urlsplit(cell.address).query)
            assert query["scorer"] == [judge.grade_condition_id]
            assert query["second_scorer"] == ["exact_match"]


def test_agreement_opens_with_the_sentence_and_one_measure(client, experiment):
    make_gradings(experiment, "exact_match", right, kind="rule")
    add_judge(experiment)
    client.force_login(experiment.owner)
    response = client.get(reverse("experiment_agreement", args=[experiment.slug]))
    text = html.unescape(response.content.decode())
    opening = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", " ", text.partition("<summary>More:")[0]))
    assert "strict agrees with Exact match on 40 of 48" in opening
    names = {measure.name for measure in response.context["result"].report.measures}
    assert [name for name in names if f" {name} " in opening] == [response.context["fitting"].name]


def test_checks_are_computed_again_when_a_rule_scores_again(experiment):
    rule = make_gradings(experiment, "exact_match", right, kind="rule")
    judge = add_judge(experiment)
    before = JUDGE_CHECKS.fingerprint(JUDGE_CHECKS.load(experiment, judge.pk))
    assert before == JUDGE_CHECKS.fingerprint(JUDGE_CHECKS.load(experiment, judge.pk))
    GradeCondition.objects.filter(pk=rule.pk).update(changes=rule.changes + 9)
    assert JUDGE_CHECKS.fingerprint(JUDGE_CHECKS.load(experiment, judge.pk)) != before
