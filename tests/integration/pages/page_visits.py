"""A visit to every page of the site, by a person who may open it."""

from dataclasses import dataclass
from datetime import timedelta

from django.test import Client
from django.urls import reverse
from django.utils import timezone

from grading_app.models import CachedAggregate, ShareLink
from grading_app.publish.figures.figure_set import FigureSource
from grading_app.tasks import compute_aggregates
from tests import factories
from tests.factories.files import build_upload
from tests.factories.queues import make_queue
from tests.factories.studies import make_graded_study, make_rated_study
from tests.integration.pages.conftest import build_url_values
from tests.integration.pages.test_access_matrix import MATRIX, PEOPLE, list_served_names

READERS = ("owner", "operator", "rater")
NO_PAGES = {
    "a file": {
        "asset", "dataset_bundle", "dataset_left_out", "experiment_bundle", "experiment_export", "experiment_manifest",
        "experiment_yaml", "figure_file", "figures_summary", "help_image", "leaderboard_figure", "llms_txt",
        "preregistration_text", "rating_image", "rating_queue_export", "report_figure", "report_file", "shared_figure",
        "shared_report_figure", "shared_report_file", "snapshot_file", "thumbnail", "upload_thumbnail",
    },
    "for programs": {"gateway_models", "healthz", "metrics"},
    "a part of a page, which a script fetches": {
        "endpoint_live", "experiment_preview", "model_status", "start_try",
    },
    "a long text as it is": {"experiment_message", "item_text", "rating_text", "trial_message", "trial_text"},
    "a redirect": {"library"},
}  # fmt: skip
"""The addresses that answer GET without a page, by the reason."""
FINISHED = (
    "experiment_detail", "experiment_results", "experiment_analysis", "experiment_agreement", "experiment_grading",
    "experiment_disagreements", "experiment_matrix", "experiment_report", "experiment_figures", "experiment_ledger",
    "experiment_files",
)  # fmt: skip
SHARED = ("shared", "shared_design", "shared_leaderboard", "shared_report", "shared_figures")


@dataclass(frozen=True)
class Visit:
    """A page and the name of the person who opens it. None: nobody is signed in."""

    name: str
    person: str | None
    address: str


def list_addresses_with_get():
    """Return the names of all addresses that answer GET, without those of the API."""
    return {name for name in list_served_names() if MATRIX[name].method == "get" and not name.startswith("api:")}


def make_visits(lab):
    """Return a visit to every page but those of share links."""
    visits, url_values = [], build_url_values(lab)
    for name in sorted(list_addresses_with_get() - set().union(*NO_PAGES.values())):
        row = MATRIX[name]
        readers = [reader for reader in READERS if row.expected[PEOPLE.index(reader)] == 200]
        if readers:
            address = reverse(name, args=[url_values.get(word, word) for word in row.args.split()])
            visits.append(Visit(name, readers[0], address))
    return [*visits, *_make_own_visits(lab)]


def _make_own_visits(lab):
    """Return the visits to pages that the lab of the access matrix lacks: drafts, uploads and links."""
    owner = lab.people["owner"]
    draft = factories.make_prompt("unready", status="draft", created_by=owner)
    queue = make_queue("planned", owner=owner, opened=False, dimensions=list(lab.queue.dimensions.all()))
    client = Client()
    client.force_login(owner)
    table = client.post(reverse("dataset_new"), {"file": build_upload("input,target\n1 + 1?,2\n"), "slug": "sent"})
    study = client.post(reverse("study_import_new"), {"study": [build_upload("a,b\n1,2\n", "trials.csv")]})
    (token,) = lab.queue.invite(1, by=owner)
    return [
        Visit("library_edit", "owner", reverse("library_edit", args=["prompts", draft.name, draft.version])),
        Visit("rating_queue_edit", "owner", reverse("rating_queue_edit", args=[queue.name])),
        Visit("dataset_import", "owner", table["Location"]),
        Visit("study_import", "owner", study["Location"]),
        Visit("rating_join", None, reverse("rating_join", args=[token])),
        Visit("login", None, reverse("login")),
    ]


def open_every_page(lab):
    """Yield each visit with the text of its page, as its person sees it."""
    for visit in [*make_visits(lab), *make_visits_of_finished_studies(lab)]:
        client = Client()
        if visit.person:
            client.force_login(lab.people[visit.person])
        yield visit, client.get(visit.address).content.decode()


def make_visits_of_finished_studies(lab):
    """Yield the visits to two studies whose results a worker has computed, also by a share link."""
    owner = lab.people["owner"]
    for study in (make_rated_study("rated-study", owner=owner), make_graded_study("graded-study", owner=owner)):
        client = Client()
        client.force_login(owner)
        names = [name for name in FINISHED if client.get(reverse(name, args=[study.slug])).status_code == 200]
        FigureSource(study).list_figures()
        compute_aggregates(list(CachedAggregate.objects.values_list("pk", flat=True)))
        yield from (Visit(name, "owner", reverse(name, args=[study.slug])) for name in names)
        _, token = ShareLink.create(study, "experiment", timezone.now() + timedelta(days=7), by=owner)
        yield from (Visit(name, None, reverse(name, args=[token])) for name in SHARED)
