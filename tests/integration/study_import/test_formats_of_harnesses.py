"""What holds for each format of other harnesses: recognised alone, imported twice as once, nothing in a dry run."""

from pathlib import Path

import pytest
from django.core.management import call_command

from datasets_app.models import Dataset
from grading_app.models import Grading
from grading_app.study_import.importers import FORMATS
from runs_app.models import Answer, Attempt, Experiment, Trial
from tests import factories

pytestmark = pytest.mark.django_db
HERE = Path(__file__).parent
STUDIES = {
    "lm-eval": "lm_eval",
    "promptfoo": "promptfoo/results.json",
    "openai-evals": "openai_evals",
    "helm": "helm/runs.zip",
    "every-eval-ever": "every_eval_ever",
    "label-studio": "label_studio/answers.json",
    "inspect": "logs/pictures.eval",
}


@pytest.fixture(autouse=True)
def owner(settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path
    return factories.make_user("owner", superuser=True)


def count_rows():
    return [model.objects.count() for model in (Dataset, Experiment, Trial, Attempt, Grading)]


@pytest.mark.parametrize("name", STUDIES)
def test_a_dry_run_counts_the_rows_that_the_import_writes_and_a_second_import_adds_nothing(name, capsys):
    path = str(HERE / STUDIES[name])
    call_command("import_study", path, "--name", "study", "--dry-run")
    out = capsys.readouterr().out
    announced = out.splitlines()[1:]
    assert f"study: would be imported from {name}" in out
    assert count_rows() == [0] * 5
    call_command("import_study", path, "--name", "study")
    rows, experiment, scores = count_rows(), Experiment.objects.get(), Grading.objects.all()
    assert experiment.imported_from == name
    answers = Trial.objects.filter(pk__in=Answer.objects.values("pk"))
    failed, judged = answers.filter(status="failed").count(), scores.exclude(judged_by=None).count()
    n_conditions = experiment.conditions.filter(stage="generate").count()
    by_judges = f", {judged} of them by judges" if judged else ""
    assert announced[:3] == [
        f"  {experiment.dataset.items.count()} items, {n_conditions} conditions",
        f"  {answers.count()} trials, {failed} of them failed; {Attempt.objects.count()} attempts",
        f"  {scores.count()} scores{by_judges}",
    ]
    assert answers.exists()
    assert scores.exists()
    call_command("import_study", path, "--name", "study")
    assert count_rows() == rows
    assert f"{Trial.objects.filter(subject=None).count()} trials already existed" in capsys.readouterr().out


@pytest.mark.parametrize("name", ["lm-eval", "promptfoo", "openai-evals", "every-eval-ever", "label-studio"])
def test_a_study_looks_like_no_other_format(name):
    path = HERE / STUDIES[name]
    assert [one.name for one in FORMATS.values() if one.recognises(path)] == [name]
