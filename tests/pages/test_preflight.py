"""Before a launch: one tiny call to each model, by a worker, and what came of it on the launch page."""

from datetime import UTC, datetime

import pytest

from runs_app.models import LanguageModel
from tests import factories

LAUNCH, PREFLIGHT = "/experiments/draft/launch/", "/experiments/draft/preflight/"


@pytest.fixture
def draft(people):
    models = [factories.make_model(name) for name in ("large", "small")]
    factories.make_model("elsewhere")
    return factories.make_experiment("draft", owner=people["owner"], models=models)


def test_all_models_of_the_experiment_are_checked_and_no_other(
    draft, as_, monkeypatch, django_capture_on_commit_callbacks
):
    asked = []
    monkeypatch.setattr("django_q.tasks.async_task", lambda *call: asked.append(call))
    with django_capture_on_commit_callbacks(execute=True):
        response = as_("owner").post(PREFLIGHT, {"next": f"{LAUNCH}?pilot=5"})
    assert response.url == f"{LAUNCH}?pilot=5"
    assert asked == [("runs_app.tasks.check_model", model.pk) for model in draft.language_models.all()]
    assert dict(LanguageModel.objects.values_list("name", "check_status")) == {
        "large": "running", "small": "running", "elsewhere": "",
    }  # fmt: skip
    assert as_("owner").get(LAUNCH).content.decode().count('hx-trigger="every 2s"') == 2


def test_each_model_says_how_it_went_why_and_when(draft, as_):
    LanguageModel.objects.filter(name="large").update(
        check_status="dead", check_detail="unauthorized: no key", checked_at=datetime(2026, 3, 1, 12, tzinfo=UTC)
    )
    page = as_("owner").get(LAUNCH).content.decode()
    assert "unauthorized: no key" in page
    assert "2026-03-01T12:00:00" in page
    assert page.count("Not checked yet") == 1
    assert "Check all" in page


def test_reading_is_not_checking(draft, as_):
    draft.sharing = "group"
    draft.save()
    assert as_("researcher").post(PREFLIGHT).status_code == 404
    assert not LanguageModel.objects.exclude(check_status="").exists()
