"""8,000 replies in every shape, good and bad: asked over HTTP, drained, read, stored, each with the code of its shape.

The simulated judge draws the shape of a reply from its seed and the request. What is expected is drawn the same way,
from what the answers say: no reply is looked at.
"""

import random
from collections import Counter
from uuid import uuid4

import pytest

from grading_app.grading.consistency_check import find_differences
from grading_app.grading.judging.judge_plan import request_verdicts
from grading_app.grading.judging.verdict_reader import read_verdicts
from grading_app.models import Grading, Preference
from runs_app.llm import judge_prompt, prompts
from runs_app.models import Attempt, Experiment, Run, Trial
from runs_app.simulator.config import SimulatorConfig
from runs_app.simulator.judge_behaviour import RequestedVerdict
from runs_app.simulator.process import simulator_process
from tests import factories
from tests.factories.judges import make_grader, make_rubric
from tests.integration.judging.test_judging_over_http import drain_over_http

pytestmark = [pytest.mark.processes, pytest.mark.django_db(transaction=True)]

SEED = 20261120
ITEMS, SAMPLES = 40, 25  # Two models give 2,000 answers. Each of four judges gives 2,000 verdicts.
ANSWERS = 2 * ITEMS * SAMPLES
NAMES = ("right", "clear", "brief")
KINDS = ("score", "criteria", "label", "pairwise")


def make_answers():
    models = [factories.make_model("small"), factories.make_model("large")]
    experiment = factories.make_experiment(
        "judged", dataset=factories.make_dataset("many", ITEMS), models=models, samples=SAMPLES, max_usd=None
    )
    for number, run in enumerate(factories.make_runs(experiment, status="done")):
        factories.plan_trials(run, answer=lambda item, _, index, number=number: f"{item.key} says {index}, {number}")
    write_generation_calls(experiment)
    return experiment


def write_generation_calls(experiment):
    """Write the generation calls, so that counters and rows agree."""
    Attempt.objects.bulk_create(
        Attempt(
            trial=trial,
            run_id=trial.run_id,
            token=uuid4(),
            outcome="ok",
            cost_usd=trial.cost_usd,
            input_tokens=trial.input_tokens,
            output_tokens=trial.output_tokens,
            finished_at=trial.completed_at,
        )
        for trial in Trial.objects.all()
    )
    Run.objects.update(n_attempts=ITEMS * SAMPLES)
    Experiment.objects.update(spent_usd=sum(run.spent_usd for run in Run.objects.all()), max_concurrency=64)
    experiment.refresh_from_db()


def make_judges(base_url):
    endpoint = factories.make_endpoint("rehearsal", base_url=base_url, max_concurrency=64, is_free=True)
    model = factories.make_model("judge", endpoint=endpoint)
    parts = [{"name": name, "score": number} for number, name in enumerate(NAMES)]
    criteria = [{"name": name} for name in NAMES]
    rubrics = [make_rubric(kind, kind, criteria=criteria, labels=parts) for kind in KINDS]
    return [make_grader(f"judge-{rubric.kind}", rubric=rubric, model=model) for rubric in rubrics]


def compute_expected_code(rubric, subject, rival):
    """Return the error code of the simulated judge's reply on this answer or pair."""
    variables = judge_prompt.build_rubric_variables(rubric.content) | judge_prompt.build_answer_variables(
        subject.answer, rival and rival.answer
    )
    turns = prompts.render(rubric.messages, variables | {"input": subject.item.input, "target": subject.item.target})
    texts = [turn["content"] for turn in turns]
    if rubric.kind == "pairwise":
        texts[-1] += f"\n\n{variables['verdict_form']}"
    dice = random.Random("\x1f".join((str(SEED), "vendor/judge", "\n\n".join(texts))))
    names = NAMES if rubric.kind in ("criteria", "label") else ()
    return RequestedVerdict(rubric.kind, names).vary_format((0, 1), dice)[1]


def iterate_stored():
    """Return (rubric, answer, other answer or None, code, whether a value exists) of all verdicts."""
    trials = Trial.objects.select_related("item").in_bulk()
    for row in Grading.objects.select_related("condition__rubric"):
        yield row.condition.rubric, trials[row.trial_id], None, row.parse_error, row.score is not None
    for preference in Preference.objects.select_related("condition__rubric"):
        first, second = trials[preference.trial_a_id], trials[preference.trial_b_id]
        yield preference.condition.rubric, first, second, preference.parse_error, bool(preference.winner)


@pytest.mark.slow
def test_eight_thousand_replies_of_all_shapes_are_stored_with_their_codes():
    with simulator_process(SimulatorConfig(seed=SEED, judge="assorted")) as provider:
        experiment = make_answers()
        request_verdicts(experiment, make_judges(provider.url), [experiment.waves.get()], by="test")
        assert drain_over_http() == 4 * ANSWERS
        assert provider.counters()["requests"] == 4 * ANSWERS
    reports = read_verdicts(experiment)
    assert [report.read for report in reports] == [ANSWERS] * 4

    n_by_code = Counter()
    for rubric, subject, rival, code, has_value in iterate_stored():
        assert code == compute_expected_code(rubric, subject, rival), (rubric.kind, subject.answer)
        assert has_value == (not code)
        n_by_code[rubric.kind, code] += 1
    assert n_by_code.total() == 4 * ANSWERS
    for kind in KINDS:
        assert sum(n for (of, _), n in n_by_code.items() if of == kind) == ANSWERS
    assert len(n_by_code) == 21  # Each kind has its values, two format codes, and one to three codes of its own.
    assert min(n_by_code.values()) > ANSWERS / 100
    assert find_differences() == []
