"""JSON exports of Label Studio: annotations as scores of answers, or as answers of people."""

import json
import statistics
from pathlib import Path

import pytest

from datasets_app.models import Norm
from grading_app.models import Grading
from grading_app.study_import.importers import read_source
from runs_app.models import Trial
from tests import factories
from tests.integration.study_import.import_command import import_refused_study, import_study

pytestmark = pytest.mark.django_db
FOLDER = Path(__file__).parent / "label_studio"


@pytest.fixture(autouse=True)
def owner():
    return factories.make_user("owner", superuser=True)


def rate(person, stars, **fields):
    result = [{"from_name": "quality", "to_name": "text", "type": "rating", "value": {"rating": stars}}]
    return {"completed_by": person, "result": result, "was_cancelled": False, "lead_time": 4.5, **fields}


def write_export(tmp_path, *tasks):
    path = tmp_path / "export.json"
    path.write_text(
        json.dumps([{"id": number, "annotations": [], **task} for number, task in enumerate(tasks, start=1)])
    )
    return path


def read_annotations(name):
    """Return the annotations of an export that were not skipped, with the data of their tasks."""
    tasks = json.loads((FOLDER / name).read_text())
    return [(task["data"], one) for task in tasks for one in task["annotations"] if not one["was_cancelled"]]


def test_an_export_of_rated_answers_has_the_scores_of_the_tool(capsys):
    import_study(FOLDER / "answers.json")
    annotations = read_annotations("answers.json")
    given = {data["response"]: one["result"][0]["value"]["rating"] for data, one in annotations}
    scores = Grading.objects.filter(condition__scorer="quality-rater-1")
    assert dict(scores.values_list("trial__answer", "score")) == given == {"Scattering.": 4, "Ask a physicist!": 2}
    labels = Grading.objects.filter(condition__scorer="kind-rater-1").values_list("trial__answer", "detail")
    assert dict(labels) == {"Scattering.": {"label": "polite"}, "Ask a physicist!": {"label": "rude"}}
    assert f"{2 * len(annotations) - 4} results repeat a question" in capsys.readouterr().out


def test_an_export_of_rated_texts_has_the_answers_and_norms_of_people(capsys):
    experiment = import_study(FOLDER / "texts.json")
    annotations = read_annotations("texts.json")
    assert experiment.runs.get().trials.count() == len(annotations)
    for item in experiment.dataset.items.all():
        given = [one["result"][0]["value"]["rating"] for data, one in annotations if data["text"] == item.input]
        assert [norm.mean for norm in item.norms.all()] == [statistics.fmean(given)]
    assert "1 annotations were skipped in the tool" in capsys.readouterr().out


def test_ratings_of_an_answer_are_scores_of_each_person(tmp_path):
    data = {"prompt": "Why?", "response": "Because.", "model": "vendor/talker"}
    import_study(
        write_export(tmp_path, {"data": data, "annotations": [rate(7, 4), rate({"id": 8, "email": "a@b"}, 2)]})
    )
    trial = Trial.objects.get()
    assert (trial.answer, trial.item.input, trial.run.condition.model.model) == ("Because.", "Why?", "vendor/talker")
    assert dict(Grading.objects.values_list("condition__scorer", "score")) == {
        "quality-rater-7": 4.0, "quality-rater-8": 2.0
    }  # fmt: skip
    assert not Norm.objects.exists()


def test_ratings_of_items_are_answers_of_people_and_norms(tmp_path):
    stars = {7: (4, 2), 8: (5, 1), 9: (3, 3)}
    tasks = [
        {
            "data": {"text": f"Text {place}"},
            "annotations": [rate(person, given[place]) for person, given in stars.items()],
        }
        for place in range(2)
    ]
    experiment = import_study(write_export(tmp_path, *tasks))
    assert sorted(experiment.conditions.values_list("model__model", flat=True)) == ["rater-7", "rater-8", "rater-9"]
    for place, item in enumerate(experiment.dataset.items.order_by("position")):
        given = [marks[place] for marks in stars.values()]
        norm = item.norms.get(dimension="quality")
        assert (norm.mean, norm.n) == (statistics.fmean(given), 3)
        assert norm.sd == pytest.approx(statistics.stdev(given))
        assert sorted(item.trials.values_list("answer", flat=True)) == sorted(map(str, given))


def test_an_annotation_of_a_prediction_is_a_score_of_it_alone(tmp_path):
    def predict(key, model, label):
        result = [{"from_name": "label", "to_name": "text", "type": "choices", "value": {"choices": [label]}}]
        return {"id": key, "model_version": model, "result": result}

    task = {
        "data": {"text": "Nice."},
        "predictions": [predict(1, "m1", "good"), predict(2, "m2", "bad")],
        "annotations": [rate(7, 5, parent_prediction=1), rate(8, 1)],
    }
    study = read_source(write_export(tmp_path, task))
    trials = {trial.condition: trial for trial in study.trials()}
    assert {name: trial.answer for name, trial in trials.items()} == {"m1": "good", "m2": "bad"}
    assert [score.value for score in trials["m1"].scores] == [5.0]
    assert trials["m2"].scores == ()
    assert any("1 annotations are of tasks with several answers" in note for note in study.notes)


def test_labels_regions_and_skipped_annotations_are_counted(tmp_path):
    label = {"from_name": "kind", "to_name": "text", "type": "choices", "value": {"choices": ["polite"]}}
    box = {"from_name": "box", "to_name": "img", "type": "rectanglelabels", "value": {"rectanglelabels": ["x"], "x": 1}}
    annotations = [
        {"completed_by": 7, "result": [label, box], "was_cancelled": False},
        {"completed_by": 8, "result": [label], "was_cancelled": True},
    ]
    path = write_export(tmp_path, {"data": {"prompt": "Hi", "answer": "Hello"}, "annotations": annotations})
    study = read_source(path)
    (trial,) = study.trials()
    (score,) = trial.scores
    assert (score.value, score.error, score.detail) == (None, "label", {"label": "polite"})
    notes = " ".join(study.notes)
    for text in ("1 rectanglelabels", "1 annotations were skipped", "1 labels have no number", "names and addresses"):
        assert text in notes


def test_a_task_without_data_and_an_export_without_annotations_are_refused(tmp_path):
    path = write_export(tmp_path, {"data": {"text": "a"}, "annotations": [rate(7, 1)]}, {"data": None})
    assert "export.json, task 2: data is missing" in import_refused_study(path)
    path = write_export(tmp_path, {"data": {"text": "a"}})
    assert "no annotation or prediction that can be imported" in import_refused_study(path)
