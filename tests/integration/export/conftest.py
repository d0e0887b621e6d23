import io
import zipfile

import pytest

from grading_app.publish.export.publication import write_publication
from runs_app.models import Run
from tests.factories.gradings import make_answered_experiment, make_gradings
from tests.factories.people import make_team


@pytest.fixture
def folder(tmp_path, db):
    """A publication of two models' answers to four items, unpacked."""
    experiment = make_answered_experiment("pilot", items=4, models=("small", "large"), owner=make_team().owner)
    make_gradings(experiment, "exact_match", lambda trial: trial.item.position % 2, kind="rule")
    make_gradings(experiment, "numeric", lambda trial: trial.item.position / 2, kind="rule")
    experiment.scorers = [{"scorer": "exact_match"}]
    experiment.save()
    Run.objects.filter(experiment=experiment).update(status="done")
    out = io.BytesIO()
    write_publication(experiment, out, hub_id="lab/pilot")
    with zipfile.ZipFile(out) as archive:
        archive.extractall(tmp_path / "publication")
    return tmp_path / "publication"
