"""Extension of a launched design: added trials, preview and refusals."""

from decimal import Decimal

import pytest
from django.db import transaction
from hypothesis import given, settings
from hypothesis import strategies as st

from runs_app import run_control
from runs_app.experiment_files.specs import ExtensionSpec
from runs_app.models import Condition, Experiment, Prompt, Run, Trial
from runs_app.planning.extension import Extension, preview_extension, read_extension
from runs_app.planning.work import PlanError
from tests.factories.drafts import (
    RATING,
    make_draft_dimension,
    make_draft_experiment,
    make_draft_sampler,
    make_question_prompt,
    make_questions,
    make_rehearsal_model,
)
from tests.shared_rows import shared_rows

pytestmark = pytest.mark.django_db


@shared_rows
def rated():
    """An experiment with three items, rated on one dimension, all done and paid."""
    prompt = make_question_prompt("rate", RATING, answer_format="rating")
    experiment = make_draft_experiment(prompts=[prompt], dimensions=[make_draft_dimension("valence")])
    run_control.launch(experiment, by="test")
    Run.objects.update(status="done", n_pending=0, n_done=3, spent_usd=1)
    Trial.objects.update(status="done")
    return experiment


def test_a_new_dimension_adds_trials_to_existing_runs_and_keeps_their_conditions(rated):
    conditions = list(Condition.objects.values())
    extension = Extension(dimensions=[make_draft_dimension("arousal")])
    preview = preview_extension(rated, extension)
    assert (preview.new_conditions, preview.new_trials, preview.after.to_do) == (0, 3, 3)
    run_control.extend(rated, extension, by="rita", reason="Both axes")
    assert list(Condition.objects.values()) == conditions
    (run,) = Run.objects.all()
    assert (run.status, run.n_done, run.n_pending, run.spent_usd) == ("running", 3, 3, 1)
    assert Trial.objects.filter(dimension__name="arousal", status="pending").count() == 3
    assert run.history.first().reason == "Both axes"


def test_the_preview_of_an_extension_equals_the_trials_and_cost_that_it_adds(rated):
    extension = Extension(
        language_models=[make_rehearsal_model("other")],
        samplers=[make_draft_sampler("warm", temperature=1, max_tokens=10)],
        dimensions=[make_draft_dimension("arousal")],
        samples=2,
    )
    preview = preview_extension(rated, extension)
    report = run_control.extend(rated, extension, by="rita")
    assert (report.trials_added, preview.new_trials) == (45, 45)
    assert preview.ceiling_usd == preview.after.ceiling_usd > Decimal(0)
    assert preview_extension(rated, Extension()).after.to_do == 45


def test_the_rest_of_a_pilot_is_separate_from_the_extension():
    experiment = make_draft_experiment()
    run_control.launch(experiment, by="test", pilot=1)
    preview = preview_extension(experiment, Extension(language_models=[make_rehearsal_model("other")]))
    assert (preview.new_trials, preview.unlaunched, preview.after.to_do) == (3, 2, 6)


def test_the_preview_warns_of_drift_if_a_newer_prompt_version_is_added():
    prompt = make_question_prompt("plain")
    experiment = make_draft_experiment(prompts=[prompt])
    run_control.launch(experiment, by="test")
    newer = make_question_prompt("plain", RATING, version=2)
    (warning,) = [
        text for text in preview_extension(experiment, Extension(prompts=[newer])).warnings if "has had" in text
    ]
    assert warning.startswith("prompt plain has had 2 contents")


def test_an_extension_adds_trials_to_the_named_wave():
    experiment = make_draft_experiment()
    for label in ("march", "april"):
        run_control.launch(experiment, by="test", wave=label)
    assert experiment.get_first_wave_label() == "march"
    run_control.extend(experiment, Extension(language_models=[make_rehearsal_model("other")]), by="test", wave="april")
    assert Run.objects.filter(wave__label="april").count() == 2
    assert Run.objects.filter(wave__label="march").count() == 1


def test_more_samples_before_a_later_wave_are_refused_by_preview_and_extension_with_one_sentence():
    experiment = make_draft_experiment()
    for label in ("", "march"):
        run_control.launch(experiment, by="test", wave=label)
    (problem,) = preview_extension(experiment, Extension(samples=2)).problems
    assert problem == (
        "samples: first wave cannot grow to 2 samples, because march follows it and has the repetitions from number 2"
        " on. Only the last wave can grow. To repeat the design, launch a new wave"
    )
    assert preview_extension(experiment, Extension(samples=2), wave_label="march").problems == []
    with pytest.raises(PlanError, match=problem):
        run_control.extend(experiment, Extension(samples=2), by="test")
    experiment.refresh_from_db()
    assert (experiment.samples, experiment.history.filter(aspect="samples").count()) == (1, 0)


@settings(max_examples=8)
@given(offsets=st.lists(st.integers(1, 4), min_size=1, max_size=3), samples=st.integers(1, 6))
def test_a_preview_has_a_problem_exactly_if_the_extension_is_refused(offsets, samples):
    """Each launched design is extended in each of its waves."""
    with transaction.atomic():
        experiment = make_draft_experiment()
        labels = [str(number) for number in range(len(offsets))]
        for label, size in zip(labels, sorted(offsets), strict=True):
            Experiment.objects.filter(pk=experiment.pk).update(samples=size)
            experiment.refresh_from_db()
            run_control.launch(experiment, by="test", wave=label)
        for label in labels:
            launched = Experiment.objects.get(pk=experiment.pk)
            extension = Extension(samples=max(samples, launched.samples))
            problems = preview_extension(launched, extension, wave_label=label).problems
            refused = []
            with transaction.atomic():
                try:
                    run_control.extend(launched, extension, by="test", wave=label)
                except PlanError as error:
                    refused = error.problems
                transaction.set_rollback(True)
            assert problems == refused, label
        transaction.set_rollback(True)


@pytest.mark.parametrize(
    ("columns", "words"), [({"status": "archived"}, "is archived"), ({"imported_from": "a tool"}, "cannot run here")]
)
def test_the_preview_refuses_what_a_launch_refuses(columns, words):
    experiment = make_draft_experiment()
    run_control.launch(experiment, by="test")
    Experiment.objects.filter(pk=experiment.pk).update(**columns)
    experiment.refresh_from_db()
    problems = preview_extension(experiment, Extension(samples=2)).problems
    assert [problem for problem in problems if words in problem], problems
    with pytest.raises(PlanError, match=words):
        run_control.extend(experiment, Extension(samples=2), by="test")


def test_a_dimension_is_refused_if_the_experiment_has_no_ratings():
    experiment = make_draft_experiment()
    run_control.launch(experiment, by="test")
    with pytest.raises(PlanError, match="launched without dimensions"):
        run_control.extend(experiment, Extension(dimensions=[make_draft_dimension()]), by="test")
    assert not experiment.dimensions.exists()


def test_the_preview_counts_points_of_a_new_dimension_and_cases_of_more_samples():
    prompt = make_question_prompt("rate", RATING, answer_format="rating")
    experiment = make_draft_experiment(
        dataset=make_questions(4, category="a"),
        prompts=[prompt],
        dimensions=[make_draft_dimension("valence")],
        scorers=["rating"],
        adaptive={"by": "category", "scorer": "rating", "round": 2, "max": 100, "targetci": 0.5},
    )
    run_control.launch(experiment, by="test")
    assert Trial.objects.count() == 2
    assert preview_extension(experiment, Extension()).after.to_do == 4
    extension = Extension(dimensions=[make_draft_dimension("arousal")], samples=3)
    preview = preview_extension(experiment, extension)
    assert (preview.new_trials, preview.after.to_do) == (20, 24)
    run_control.extend(experiment, extension, by="test")
    assert Trial.objects.filter(dimension__name="arousal").count() == 2


def test_a_new_model_also_runs_archived_prompts_of_the_design(rated):
    rated.prompts.update(status="archived")
    extension = Extension(language_models=[make_rehearsal_model("other")])
    preview = preview_extension(rated, extension)
    assert (preview.problems, preview.new_conditions, preview.new_trials) == ([], 1, 3)
    run_control.extend(rated, extension, by="rita")
    assert Trial.objects.filter(run__condition__model__name="other", status="pending").count() == 3


def test_a_new_part_that_is_archived_or_inactive_is_refused(rated):
    for extension, problem in (
        (Extension(language_models=[make_rehearsal_model("off", is_active=False)]), "model off is not active"),
        (Extension(samplers=[make_draft_sampler("old", status="archived")]), "sampler old@1 is archived"),
    ):
        assert problem in preview_extension(rated, extension).problems
        with pytest.raises(PlanError, match=problem):
            run_control.extend(rated, extension, by="rita")


def test_an_inactive_model_gets_no_new_trials_and_the_preview_warns(rated):
    rated.language_models.update(is_active=False)
    extension = Extension(language_models=[make_rehearsal_model("other")], dimensions=[make_draft_dimension("arousal")])
    preview = preview_extension(rated, extension)
    assert (preview.problems, preview.new_conditions, preview.new_trials) == ([], 1, 6)
    assert "is inactive: it gets no new trials" in preview.warnings[0]
    report = run_control.extend(rated, extension, by="rita")
    assert report.trials_added == 6
    old_run = Run.objects.exclude(condition__model__name="other").get()
    assert (old_run.status, old_run.n_done, old_run.n_pending) == ("done", 3, 0)
    assert rated.language_models.count() == 2
    assert rated.manifests.count() == 2


def test_a_design_with_only_inactive_models_cannot_be_extended_by_a_prompt(rated):
    rated.language_models.update(is_active=False)
    newer = make_question_prompt("rate", RATING, version=2, answer_format="rating")
    (problem,) = preview_extension(rated, Extension(prompts=[newer])).problems
    assert problem.endswith("is not active")


def test_a_file_with_an_archived_prompt_of_the_design_adds_no_second_version(rated):
    (prompt,) = rated.prompts.all()
    (turn,) = prompt.messages
    spec = ExtensionSpec(prompts=[{"name": prompt.name, "user": turn["content"], "answer_format": "rating"}])
    rated.prompts.update(status="archived")
    assert read_extension(spec, rated, by=rated.owner, trusted=True).is_empty
    assert Prompt.objects.count() == 1
