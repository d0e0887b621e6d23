"""`grade: graders:` of an experiment file: existing judges by name, new judges inline."""

import pytest

from grading_app.grading.judging.grader_specs import create_experiment
from grading_app.models import Grader, Rubric
from runs_app.experiment_files.spec_reader import SpecError, read_yaml
from runs_app.planning.spec_io import duplicate, to_yaml
from tests import factories
from tests.factories.judges import make_grader

FILE = """
experiment: judged
dataset: questions@1
models: [small]
prompts: [{name: plain, user: "{{input}}"}]
grade:
  scorers: [exact_match]
  graders:
    - name: judge-a
      model: judge
      rubric:
        name: standard
        system: "Grade {{scale}}."
        user: "{{input}} {{answer}}"
        max: 10
"""


@pytest.fixture
def curator(db):
    factories.make_dataset("questions")
    factories.make_model("small")
    factories.make_model("judge")
    return factories.make_user("curator", "Curator", superuser=True)


def test_an_inline_judge_is_created_with_its_rubric_and_temperature_0(curator):
    experiment = create_experiment(read_yaml(FILE), by=curator)

    grader = Grader.objects.get()
    assert experiment.graders == ["judge-a"]
    assert (grader.name, grader.language_model.name, grader.on_empty) == ("judge-a", "judge", "skip")
    assert grader.sampler.content == {"temperature": 0, "max_tokens": 1024}
    assert (grader.rubric.status, grader.rubric.scale_max, len(grader.rubric.messages)) == ("approved", 10, 2)


def test_an_exported_file_recreates_the_same_judges(curator):
    experiment = create_experiment(read_yaml(FILE), by=curator)
    text = to_yaml(experiment).replace("experiment: judged", "experiment: again")

    assert create_experiment(read_yaml(text), by=curator).graders == ["judge-a"]
    assert (Grader.objects.count(), Rubric.objects.count()) == (1, 1)
    assert duplicate(experiment, "copy", by=curator).graders == ["judge-a"]


def test_a_file_can_name_an_existing_judge(curator):
    make_grader("known")
    text = FILE[: FILE.index("  graders:")] + "  graders: [known]\n"
    assert create_experiment(read_yaml(text), by=curator).graders == ["known"]


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ("model: judge", "model: nobody", "grade.graders[0].model: there is no language model nobody"),
        ("name: judge-a", "name: taken", "grade.graders[0]: another grader taken exists; choose a different"),
        ("rubric:\n        name: standard", "rubric: unheard\n      on_empty: skip #", "there is no rubric unheard"),
    ],
)
def test_an_invalid_judge_is_reported_and_nothing_is_created(curator, before, after, problem):
    make_grader("taken")
    text = FILE.replace(before, after)
    if "unheard" in after:
        text = text[: text.index(" #")] + "\n"
    with pytest.raises(SpecError) as refusal:
        create_experiment(read_yaml(text), by=curator)
    assert problem in str(refusal.value)
    assert Grader.objects.count() == 1
