"""The queue's page and the page of agreement print the same agreement of the same raters.

The answers to one item are correlated, so intervals are over items, not over answers.
"""

import pytest
from django.core.cache import cache
from django.urls import reverse

from grading_app.grading.rating.queue_results import list_question_results
from grading_app.results.statistic_format import format_coefficient_interval
from grading_app.statistics.intraclass import intraclass_correlation
from grading_app.statistics.ratings import Ratings
from tests.factories.gradings import make_answered_experiment
from tests.factories.queues import make_answer_queue, make_rater, rate_all, sign_in
from tests.page_text import page_text

pytestmark = pytest.mark.django_db


@pytest.fixture(autouse=True)
def empty_cache():
    cache.clear()


def test_a_queue_over_eight_answers_per_item_and_agreement_print_the_same_icc():
    study = make_answered_experiment(items=6, models=[f"model-{letter}" for letter in "abcdefgh"])
    queue = make_answer_queue(experiment=study, raters_wanted=3)
    (dimension,) = queue.dimensions.all()
    values = {}
    for shift in (0, 1, 1):
        rater = make_rater(queue, started=True)

        def choose(rating, shift=shift, rater=rater):
            level = 1 + rating.item.position % 4 + shift * (rating.item.position % 2)
            values[rating.trial_id, rater.pk] = level
            return level

        rate_all(rater, value=choose)
    assert len(values) == 6 * 8 * 3
    client = sign_in(study.owner)
    client.get(query := f"{reverse('experiment_agreement', args=[study.slug])}?rater=q{queue.pk}-{dimension.pk}")
    report = client.get(query).context["result"].report
    (on_agreement,) = [line.estimate for line in report.measures if line.name == "ICC(2,1)"]
    queue_page = client.get(queue.get_absolute_url())
    (line,) = list_question_results(queue)
    assert (line.icc.estimate, line.icc.low, line.icc.high) == pytest.approx(
        (on_agreement.estimate, on_agreement.low, on_agreement.high)
    )
    assert (line.icc.units, line.icc.clusters) == (48, 6)
    interval = format_coefficient_interval(on_agreement.low, on_agreement.high)
    assert interval in page_text(queue_page)
    assert interval in page_text(client.get(query))
    of_answers = intraclass_correlation(Ratings.from_triples([(*key, value) for key, value in values.items()]), "2,1")
    assert of_answers.result().estimate == pytest.approx(line.icc.estimate)
    assert abs(of_answers.result().low - line.icc.low) > 0.1
