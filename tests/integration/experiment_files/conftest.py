from pathlib import Path

import pytest

from tests.factories import make_endpoint, make_user
from tests.factories.drafts import make_questions
from tests.shared_rows import shared_rows

SAMPLES = Path(__file__).resolve().parents[3] / "samples"


@shared_rows
def curator():
    return make_user("curator", "Curator", "Operator")


@shared_rows
def researcher():
    return make_user("researcher", "Researcher")


@shared_rows
def lab():
    """Create the rows to which the shipped experiment files refer."""
    make_endpoint("rehearsal")
    make_questions(2, slug="photographs")
    make_questions(2, slug="questions")


@pytest.fixture(params=["affect-pilot", "questions-pilot"])
def sample_file(request):
    return (SAMPLES / f"{request.param}.yaml").read_text()
