"""Trials as a tab of their experiment: scores in columns, filters by score, and the verdict before the messages."""

import pytest
from django.urls import reverse

from grading_app.grading.scoring import grade
from tests import factories
from tests.shared_rows import shared_rows

pytestmark = pytest.mark.django_db


@shared_rows
def graded():
    experiment = factories.make_experiment(
        "sums", dataset=factories.make_dataset("sums", 4), samples=2, scorers=["numeric", "exact_match"]
    )
    (run,) = factories.make_runs(experiment)
    factories.plan_trials(run, answer=lambda item, _, index: item.target if item.position % 2 else "77")
    grade(experiment, by="test")
    return experiment


@pytest.fixture
def open_trial_list(client, graded):
    client.force_login(graded.owner)
    return lambda **query: client.get(reverse("trial_list"), query)


def test_the_trial_list_is_a_page_of_its_experiments_answers(open_trial_list):
    text = open_trial_list(experiment="sums").content.decode()
    assert 'aria-label="Experiment"' in text
    assert '<a href="/experiments/sums/matrix/" aria-current="true">Answers</a>' in text
    assert '<a href="/trials/?experiment=sums" aria-current="page">Trials</a>' in text
    assert "8 trials" in text
    assert 'aria-label="Experiment"' not in open_trial_list().content.decode()


@pytest.mark.slow
def test_every_list_shows_the_number_of_matching_trials(open_trial_list):
    assert "8 trials" in open_trial_list(experiment="sums", status="done").content.decode()
    assert open_trial_list(experiment="sums", status="failed").context["count_label"] == "0 trials"
    assert open_trial_list(experiment="sums", category="even").context["count_label"] == "4 trials"


def test_every_scorer_has_a_column_with_the_extracted_answer(open_trial_list):
    table = open_trial_list(experiment="sums").context["table"]
    heads = [column.header for column in table.columns]
    assert heads.count("Number within tolerance") == 1, heads
    cells = [row.get_cell(name) for row in table.rows for name in table.columns.names() if name.startswith("score_")]
    assert sum("✓ right" in cell for cell in cells) == sum("✗ wrong" in cell for cell in cells) == 8
    assert any("77" in cell for cell in cells)


@pytest.mark.parametrize(
    ("query", "positions"),
    [
        ({"scorer": "numeric", "score": "1"}, {1, 3}),
        ({"scorer": "numeric", "score": "0"}, {0, 2}),
        ({"scorer": "exact_match"}, {0, 1, 2, 3}),
        ({"scorer": "bleu"}, set()),
    ],
)
def test_trials_can_be_filtered_by_scorer_and_score(open_trial_list, graded, query, positions):
    keys = open_trial_list(experiment="sums", **query).context["page"].keys
    trials = graded.runs.get().trials.filter(item__position__in=positions)
    assert keys == sorted(trials.values_list("pk", flat=True))


@pytest.mark.parametrize("score", ["much", "nan", "inf"])
def test_a_non_numeric_score_is_reported_and_finds_no_trial(open_trial_list, score):
    response = open_trial_list(experiment="sums", score=score)
    assert (response.status_code, response.context["page"].keys) == (200, [])
    assert "Enter a number" in response.content.decode()


def test_a_trial_shows_its_verdict_before_its_messages(client, graded):
    client.force_login(graded.owner)
    trial = graded.runs.get().trials.filter(item__position=1).first()
    text = client.get(trial.get_absolute_url()).content.decode()
    assert text.index('id="verdict"') < text.index('id="conversation"')
    verdict = text[text.index('id="verdict"') : text.index('id="conversation"')]
    assert "Target" in verdict
    assert verdict.count("<strong>✓ right</strong>") == 2


def test_a_rated_trial_shows_the_human_norm(client):
    items = [{**factories.build_question(0), "norms": {"valence": 4.25}}]
    experiment = factories.make_experiment(
        "faces", dataset=factories.make_dataset("faces", items), dimensions=[factories.make_dimension("valence")]
    )
    (run,) = factories.make_runs(experiment)
    (trial,) = factories.plan_trials(run, answer=lambda *_: {"answer": "5", "rating": 5})
    client.force_login(experiment.owner)
    text = client.get(trial.get_absolute_url()).content.decode()
    verdict = text[text.index('id="verdict"') : text.index('id="conversation"')]
    assert "<strong>5</strong>" in verdict
    assert "4.25" in verdict
