"""Cache marks of a model change the request that is sent, not its hash."""

import pytest

from runs_app.engine.requests import build_question, build_run_design
from runs_app.models import Condition, LanguageModel, Run
from tests import factories

LONG = "Judge with care. " * 250


@pytest.fixture
def run(db):
    return make_marked_run()


def make_marked_run():
    factories.make_team()
    experiment = factories.make_experiment("marked", prompts=[factories.make_prompt("long", user=LONG + "{{input}}")])
    return factories.make_runs(experiment)[0]


def prepare_run_request(run):
    run = Run.objects.with_design().get(pk=run.pk)
    return build_run_design(run).prepare_request(build_question(run.experiment.dataset.items.first(), None), 0)


@pytest.mark.parametrize(("provider", "takes_marks"), [("anthropic", True), ("openrouter", True), ("openai", False)])
def test_only_supporting_providers_get_cache_marks_and_the_request_hash_stays_equal(db, provider, takes_marks):
    factories.make_endpoint(provider=provider)
    run = make_marked_run()
    plain = prepare_run_request(run)
    LanguageModel.objects.update(cache_marks=True)
    marked = prepare_run_request(run)
    assert ("cache_control" in str(marked.request.messages)) is takes_marks
    assert marked.request_hash == plain.request_hash
    assert "cache_control" not in str(Condition.objects.values_list("content", flat=True))
