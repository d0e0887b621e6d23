"""Analyses of answers and prompts: numbers equal the rows, and pages show a worker's results."""

import csv
import io
import zlib
from random import Random

import pytest
from django.test import Client
from django.urls import reverse

from grading_app.results.parametric import answer_views
from grading_app.results.parametric.answer_texts import MIN_BYTES, TextQuery, measure_compression, measure_spectra
from grading_app.results.parametric.answer_views import LengthQuery, count_lengths
from grading_app.results.parametric.point_counts import list_graders
from grading_app.tasks import compute_aggregates
from runs_app.models import Trial
from runs_app.pricing.token_counter import encode_groups
from tests.factories.spaces import make_space_dataset, make_space_experiment
from tests.page_text import page_text

pytestmark = pytest.mark.django_db
LOOP, PROSE = "again and again " * 60, "".join(Random(3).choices("abcdefghijklmnopqrstuvwxyz ", k=900))


@pytest.fixture
def work(monkeypatch):
    """Return `work()`, which runs the enqueued tasks."""
    tasks = []
    monkeypatch.setattr("django_q.tasks.async_task", lambda name, *arguments: tasks.append(arguments))

    def compute():
        while tasks:
            compute_aggregates(*tasks.pop())

    return compute


def get_grader(experiment):
    return list_graders([experiment])[experiment.pk][0].pk


def explore(experiment, **query):
    client = Client()
    client.force_login(experiment.owner)
    return client.get(reverse("explorer", args=[experiment.slug]), query)


def read_rows(experiment, table, **query):
    response = explore(experiment, table=table, format="csv", **query)
    return list(csv.DictReader(io.StringIO(response.content.decode().lstrip("\ufeff"))))


def add_reasoning(experiment):
    """Make truncated answers repetitive and correct answers varied."""
    for trial in Trial.objects.filter(run__experiment=experiment).select_related("item"):
        text = LOOP if trial.truncated else PROSE
        Trial.objects.filter(pk=trial.pk).update(reasoning=f"{trial.item.key} {text}")


def test_compression_is_measured_separately_for_right_wrong_and_truncated_answers(work):
    from tests.factories.tampering import disable_triggers

    experiment = make_space_experiment(models=("m",))
    with disable_triggers():
        add_reasoning(experiment)
    measured = {
        (one.task, one.outcome): one
        for one in measure_compression(TextQuery(experiment, get_grader(experiment), "compression"))
    }
    assert measured["brackets", "cut off"].mean < 0.15 < 0.5 < measured["brackets", "right"].mean
    truncated = Trial.objects.filter(run__experiment=experiment, item__category="brackets", truncated=True)
    texts = [(trial.reasoning + trial.answer).encode() for trial in truncated]
    assert measured["brackets", "cut off"].n == len(texts)
    expected = sum(len(zlib.compress(text, 9)) / len(text) for text in texts) / len(texts)
    assert measured["brackets", "cut off"].mean == pytest.approx(expected)
    assert measured["brackets", "cut off"].low < expected < measured["brackets", "cut off"].high
    explore(experiment, view="compression")
    work()
    rows = read_rows(experiment, "compression", view="compression")
    assert {(row["task"], row["outcome"]) for row in rows} == set(measured)


def test_short_answers_are_not_compressed(work):
    experiment = make_space_experiment(models=("m",))
    assert all(len(answer) < MIN_BYTES for answer in Trial.objects.values_list("answer", flat=True))
    explore(experiment, view="compression")
    work()
    assert "No answer is long enough to be compressed" in page_text(explore(experiment, view="compression"))


def test_lengths_count_every_answer_by_its_outcome():
    experiment = make_space_experiment(models=("m",))
    condition = experiment.conditions.get().pk
    lengths = count_lengths(LengthQuery(experiment, get_grader(experiment), condition, "brackets"))
    trials = Trial.objects.filter(run__experiment=experiment, item__category="brackets")
    assert lengths.answers == trials.count() == 48
    assert sum(lengths.cut) == trials.filter(truncated=True).count()
    assert sum(lengths.right) == trials.filter(gradings__score=1).count()
    assert lengths.tokens == sorted(set(trials.values_list("output_tokens", flat=True)))


def test_truncated_answers_are_censored_at_their_length():
    # One of four answers is truncated at 20. Then one of the two remaining answers ends at 30.
    lengths = answer_views.AnswerLengths([10, 20, 30, 40], [0, 1, 0, 0], [1, 0, 1, 0], [0, 0, 0, 1])
    assert [(step.time, 1 - step.survival) for step in lengths.estimate_survival()] == [
        (10, 0.25),
        (30, 0.625),
        (40, 1.0),
    ]
    assert lengths.estimate_share_until(lengths.right, 30)[0] == 0.5
    assert [share for _, share, *_ in lengths.estimate_share_curve(lengths.cut)] == [0.25]


def test_merging_lengths_never_shortens_an_answer(monkeypatch):
    monkeypatch.setattr(answer_views, "MAX_LENGTHS", 10)
    rows = answer_views._merge_lengths([(at, 0, 1, 0) for at in range(1, 101)])
    assert len(rows) == 10
    assert rows[0] == (10, 0, 10, 0)
    assert sum(right for _, _, right, _ in rows) == 100


def test_the_tokens_page_has_a_row_for_each_step():
    experiment = make_space_experiment(models=("m",))
    rows = read_rows(experiment, "hazard", view="hazard", task="brackets")
    assert float(rows[-1]["right"]) + float(rows[-1]["cut"]) <= 1
    finished = [float(row["finished"]) for row in rows]
    assert finished == sorted(finished)
    assert all(
        float(row["finished_ci_low"]) <= float(row["finished"]) <= float(row["finished_ci_high"]) for row in rows
    )


@pytest.mark.slow
def test_the_shipped_tokenizer_encodes_prompts_in_groups():
    import tiktoken  # noqa: F401 - its tables are read by the child process alone

    groups = list(encode_groups("o200k_base", [["hello world", ""], ["( [ {"]]))
    assert groups[0] == [[24912, 2375], []]
    assert len(groups[1][0]) >= 3


@pytest.mark.slow
def test_spectra_are_computed_from_the_questions_at_each_point(work):
    experiment = make_space_experiment(dataset=make_space_dataset(count=6), models=("m",))
    measured = measure_spectra(TextQuery(experiment, get_grader(experiment), "spectrum"))
    assert [one.task for one in measured] == ["brackets"] * 12 + ["swaps"] * 4
    assert {one.texts for one in measured if one.task == "swaps"} == {6}
    swaps = [one for one in measured if one.task == "swaps"]
    assert swaps[-1].tokens > swaps[0].tokens  # More swaps are longer texts.
    explore(experiment, view="spectrum", task="swaps")
    work()
    rows = read_rows(experiment, "spectrum", view="spectrum", task="swaps")
    assert len(rows) == 4
    assert all(0 <= float(row["distance"]) < 0.5 for row in rows)
    page = explore(experiment, view="spectrum", task="swaps")
    assert [figure["name"] for figure in page.context["figures"]] == ["space-spectrum"]
