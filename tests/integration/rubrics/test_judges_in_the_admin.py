"""Judges and panels in the admin: only usable parts are offered, and used judges are read-only."""

from django.urls import reverse

from grading_app.models import GradeCondition, Grader, Panel
from runs_app.models import Sampler
from tests.factories import make_experiment, make_model, make_sampler
from tests.factories.judges import make_grader, make_starter_rubric

ADD, LIST = reverse("admin:grading_app_grader_add"), reverse("admin:grading_app_grader_changelist")


def build_change_address(row):
    return reverse(f"admin:grading_app_{row._meta.model_name}_change", args=[row.pk])


def build_form_data(rubric, **fields):
    form_data = {"name": "strict", "language_model": make_model("judge").pk, "rubric": rubric.pk, "on_empty": "skip"}
    return form_data | fields


def test_a_judge_without_a_sampler_gets_temperature_zero(as_user, researcher):
    web = as_user(researcher)
    web.post(ADD, build_form_data(make_starter_rubric()))
    web.post(ADD, build_form_data(make_starter_rubric("other"), name="second"))
    first, second = Grader.objects.order_by("pk")
    assert (first.sampler.temperature, first.sampler, first.created_by) == (0, second.sampler, researcher)
    assert Sampler.objects.count() == 1


def test_an_existing_sampler_with_the_default_name_is_not_changed(as_user, researcher):
    warm = make_sampler("judging", temperature=1)
    as_user(researcher).post(ADD, build_form_data(make_starter_rubric()))
    assert Grader.objects.get().sampler.version == warm.version + 1
    assert Grader.objects.get().sampler.temperature == 0


def test_draft_and_archived_rubrics_cannot_be_selected(as_user, researcher):
    for status in ("draft", "archived"):
        form = (
            as_user(researcher)
            .post(ADD, build_form_data(make_starter_rubric(status, status=status)))
            .context["adminform"]
            .form
        )
        assert "rubric" in form.errors
    assert not Grader.objects.exists()


def test_a_judge_with_gradings_is_read_only(as_user, curator):
    grader = make_grader("judge")
    GradeCondition.objects.create(
        experiment=make_experiment(), grade_condition_id="g--1", kind="judge", grader=grader, rubric=grader.rubric
    )
    web = as_user(curator)
    web.post(build_change_address(grader), {"name": "other"})
    web.post(reverse("admin:grading_app_grader_delete", args=[grader.pk]), {"post": "yes"})
    grader.refresh_from_db()
    assert grader.name == "judge"
    assert "<select" not in web.get(build_change_address(grader)).content.decode()


def test_archiving_a_judge_with_a_reason_disables_it(as_user, researcher):
    grader = make_grader()
    Grader.objects.update(created_by=researcher)
    chosen = {"action": "archive", "_selected_action": [grader.pk], "confirmed": "yes", "reason": "a newer model"}
    as_user(researcher).post(LIST, chosen)
    assert not Grader.objects.filter(archived_at=None).exists()
    page_again = as_user(researcher).post(LIST, chosen, follow=True).content.decode()
    assert "is already archived" in page_again


def test_a_panel_is_created_from_judges(as_user, researcher):
    graders = [make_grader("one")]
    graders.append(make_grader("two", rubric=graders[0].rubric, model=make_model("other")))
    form_data = {"name": "bench", "rule": "median", "graders": [grader.pk for grader in graders]}
    alone = as_user(researcher).post(reverse("admin:grading_app_panel_add"), {**form_data, "graders": [graders[0].pk]})
    assert ["Choose at least two judges."] in alone.context["errors"]
    as_user(researcher).post(reverse("admin:grading_app_panel_add"), form_data)
    panel = Panel.objects.get()
    assert (panel.rule, list(panel.graders.order_by("name"))) == ("median", graders)
    assert "one, two" in as_user(researcher).get(reverse("admin:grading_app_panel_changelist")).content.decode()
