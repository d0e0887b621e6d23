"""Pages name rules, judges, conditions and waves in words, and show no key of the database or of a file."""

import re
from urllib.parse import urlsplit

import pytest
from django.test import Client

from evalsite.lib import permissions
from grading_app.grading.scoring import grade
from tests import factories
from tests.factories.gradings import make_gradings, make_scale_rubric
from tests.factories.judges import make_grader

pytestmark = pytest.mark.django_db

KEYS = re.compile(r"\bexact_match\b|\(correctness@1\)|\bg\d+\b|\bwave 0\b|\b[\w-]+--[0-9a-f]{12}\b", re.IGNORECASE)
# Texts of files and commands, and the identifiers that help to find a name in a file.
NOT_READ = re.compile(r"<(script|style|textarea|pre|code)\b.*?</\1>|<(\w+)[^>]*\bmono\b[^>]*>.*?</\2>", re.DOTALL)
LINK = re.compile(r'href="(/[^"#]*)')
FILE = re.compile(r"\.(csv|jsonl|parquet|pdf|png|svg|tex|md|zip|ya?ml)$")  # Not a page, and slow to draw.


@pytest.fixture
def study(db):
    """An experiment with one wave, a rule and a judge, read by its owner."""
    owner = factories.make_user("owner", permissions.RESEARCHER)
    experiment = factories.make_experiment(
        "study", owner=owner, dataset=factories.make_dataset("sums", 6), scorers=["exact_match"], status="active",
        models=[factories.make_model("big"), factories.make_model("tiny")],
    )  # fmt: skip
    for run in factories.make_runs(experiment, status="done"):
        factories.plan_trials(run, answer=lambda item, *_: item.target if item.position % 3 else "no")
    grade(experiment, by="test")
    rubric = make_scale_rubric("correctness", low=0, high=1)
    judged = make_gradings(experiment, "strict-judge", lambda trial: float(trial.item.position % 2), rubric=rubric)
    judged.grader = make_grader("strict-judge", rubric=rubric)
    judged.save(update_fields=["grader"])
    return experiment


def read_words(page):
    return " ".join(re.sub(r"<[^>]*>", " ", NOT_READ.sub(" ", page)).split())


def test_no_page_of_an_experiment_shows_a_key(study):
    client = Client()
    client.force_login(study.owner)
    run = study.answer_runs.first()
    waiting = [
        "/experiments/study/",
        "/experiments/",
        "/",
        run.get_absolute_url(),
        run.trials.first().get_absolute_url(),
    ]
    seen, found = set(waiting), {}
    while waiting:
        address = waiting.pop()
        answer = client.get(address, follow=True)
        if answer.status_code != 200 or "text/html" not in answer.headers["Content-Type"]:
            continue
        page = answer.content.decode()
        if keys := KEYS.findall(read_words(page)):
            found[address] = keys
        for link in LINK.findall(page):
            path = urlsplit(link).path
            if path.startswith("/experiments/study/") and path not in seen and not FILE.search(path):
                seen.add(path)
                waiting.append(path)
    assert {f"/experiments/study/{page}/" for page in ("results", "matrix", "grading", "analysis", "report")} <= seen
    assert found == {}
