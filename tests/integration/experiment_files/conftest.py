from pathlib import Path

import pytest

from tests.factories import make_endpoint, make_user
from tests.factories.drafts import make_questions

SAMPLES = Path(__file__).resolve().parents[3] / "samples"


@pytest.fixture
def curator(db):
    return make_user("curator", "Curator", "Operator")


@pytest.fixture
def researcher(db):
    return make_user("researcher", "Researcher")


@pytest.fixture
def lab(db):
    """Create the rows to which the shipped experiment files refer."""
    make_endpoint("rehearsal")
    make_questions(2, slug="photographs")
    make_questions(2, slug="questions")


@pytest.fixture(params=["affect-pilot", "questions-pilot"])
def sample_file(request):
    return (SAMPLES / f"{request.param}.yaml").read_text()
