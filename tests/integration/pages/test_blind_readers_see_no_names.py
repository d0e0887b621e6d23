"""Every address of the site, opened by a blind reader: no byte names a model of the experiment.

The tests find addresses in the URL configuration, so they include pages that are added later.
"""

import re
from datetime import timedelta
from html import unescape

import pytest
from django.contrib import admin
from django.core.cache import cache
from django.db import transaction
from django.http import HttpResponse
from django.test import RequestFactory
from django.urls import reverse
from django.utils import timezone

from grading_app.blind_pages import BlindPagesMiddleware
from grading_app.models import BlindReading, CachedAggregate, RatingQueue, ShareLink
from grading_app.scoring.grading import grade
from grading_app.tasks import compute_aggregates
from runs_app.models import Experiment
from tests import factories
from tests.factories.files import run_in_this_process
from tests.factories.queues import make_queue
from tests.integration.pages.conftest import Lab, _make_draft
from tests.integration.pages.test_access_matrix import MATRIX, build_url_values, list_served_names

NAMES = ("grampus", "narwhal", "skerry", "gemini", "fathom")
"""Parts of the names of models, their slugs, the endpoint, its address and provider, and the served provider."""
OF_THE_SITE = re.compile(
    r"/(endpoints|workers|help|welcome|library/(new|judges))/|/experiments/new/|/datasets/new/parametric/|/api/v1/models|/metrics"
)
"""Pages of the site's models, from which people choose: they belong to no experiment."""
QUESTION = "This page shows the names of models. Reveal them first."
MAX_ADDRESSES = 200


@pytest.fixture(autouse=True)
def write_bundles_in_this_process(monkeypatch):
    """Write bundles in this process, because another process cannot see the rows of the test."""
    monkeypatch.setattr("grading_app.views.files.stream_command", run_in_this_process)


@pytest.fixture
def lab(people, settings, tmp_path):
    settings.MEDIA_ROOT = tmp_path
    cache.clear()
    endpoint = factories.make_endpoint("skerry", provider="gemini", base_url="https://skerry.example/v1")
    items = [
        {**factories.build_question(n), "category": "ab"[n % 2], "norms": {"valence": 1 + n % 4}} for n in range(8)
    ]
    study = factories.make_experiment(
        "study", owner=people["owner"], dataset=factories.make_dataset("questions", items), status="active",
        models=[factories.make_model(name, endpoint=endpoint) for name in NAMES[:2]],
        prompts=[factories.make_prompt("short")], dimensions=[factories.make_dimension("valence")],
        scorers=["numeric"],
    )  # fmt: skip
    runs = factories.make_runs(study, status="done")
    for number, run in enumerate(runs):
        trials = factories.plan_trials(
            run,
            answer=lambda item, *_, number=number: {
                "answer": item.target if item.position > number else "-1", "rating": 1 + (item.position + number) % 6,
                "served_model": f"{NAMES[number]}-2026", "served_provider": "fathom",
            },
        )  # fmt: skip
    grade(study, by="test")
    queue = make_queue(
        "looking", owner=people["owner"], dataset=study.dataset, subject=RatingQueue.Subject.ANSWERS, experiment=study,
        dimensions=list(study.dimensions.all()), opened=False,
    )  # fmt: skip
    queue.conditions.set(study.conditions.all())
    draft = _make_draft(people["owner"])
    return Lab(people, study, runs[0], trials[0], trials[-1], study.language_models.first(), draft, queue)


def list_addresses(lab):
    """Return every address of the site with its method, for this experiment."""
    url_values = build_url_values(lab)
    tomorrow = timezone.now() + timedelta(days=1)
    _, token = ShareLink.create(lab.experiment, ShareLink.Scope.values[0], tomorrow, label="", by=lab.people["owner"])
    url_values |= {"token": token, "one": "1"}
    addresses = []
    for name in list_served_names():
        row = MATRIX[name]
        of_draft = name in ("dataset_edit", "dataset_norms", "item_detail", "item_text", "item_act")
        values = url_values | ({"one": lab.draft.version} if of_draft else {})
        addresses.append((row.method, reverse(name, args=[values.get(word, word) for word in row.args.split()])))
    return addresses


def list_addresses_with_choices(lab):
    """Return addresses whose parameters choose other rows, files or styles."""
    first, second = lab.experiment.conditions.order_by("pk").values_list("pk", flat=True)[:2]
    trials, compare = reverse("trial_list"), f"{reverse('compare')}?a=study:{first}&b=study:{second}"
    return [
        f"{trials}?experiment=study", f"{trials}?run={lab.run.pk}", f"{trials}?condition={first}&experiment=study",
        f"{trials}?experiment=%20study", f"{trials}?experiment=other&experiment=study", f"{trials}?experiment=none",
        f"{reverse('batch_list')}?experiment=study", f"{reverse('batch_list')}?experiment=%20study",
        f"{reverse('trial_detail', args=[lab.trial.pk])}?experiment=other",
        compare, f"{compare}&measure=numeric:valence", f"{compare}&measure=numeric:valence&table=difference&format=csv",
        reverse("figure_file", args=["study", "means", "svg"]) + "?mm=90",
        reverse("figure_file", args=["study", "all", "pdf"]),
        *(reverse("experiment_export", args=["study", "trials", kind]) for kind in ("csv", "jsonl", "parquet")),
        reverse("experiment_results", args=["study"]) + f"?baseline={first}&missing=wrong",
        reverse("experiment_matrix", args=["study"]) + f"?measure=numeric:valence&a={first}&b={second}",
        reverse("experiment_matrix", args=["study"]) + "?table=matrix&format=csv",
        reverse("experiment_analysis", args=["study"]) + "?table=factors&format=md",
    ]  # fmt: skip


def iterate_admin_addresses(lab):
    for model in admin.site._registry:
        stem = f"admin:{model._meta.app_label}_{model._meta.model_name}"
        yield reverse(f"{stem}_changelist")
        if (row := model._default_manager.first()) is not None:
            yield reverse(f"{stem}_change", args=[row.pk])
    yield reverse("admin:index")


def read_response(response):
    body = b"".join(response.streaming_content) if response.streaming else response.content
    head = "\n".join(f"{name}: {value}" for name, value in response.headers.items())
    return f"{head}\n{body.decode('utf-8', 'replace')}"


def find_names(response):
    text = read_response(response).lower()
    return [name for name in NAMES if name in text]


def open_when_computed(client, address):
    response = client.get(address)
    if waiting := list(CachedAggregate.objects.filter(computed_at=None).values_list("pk", flat=True)):
        compute_aggregates(waiting)
        return client.get(address)
    return response


@pytest.mark.parametrize("person", ["owner", pytest.param("operator", marks=pytest.mark.slow)])
def test_no_address_of_the_site_names_a_model_to_a_blind_reader(person, lab, as_):
    BlindReading.start(lab.experiment, lab.people[person])
    reader, n_asked = as_(person), 0
    for method, address in list_addresses(lab) + [("get", one) for one in list_addresses_with_choices(lab)]:
        if OF_THE_SITE.match(address):
            continue
        with transaction.atomic():
            response = getattr(reader, method)(address)
            assert not find_names(response), (method, address)
            n_asked += response.status_code in (200, 403) and QUESTION in read_response(response)
            transaction.set_rollback(True)
    assert n_asked > 40, "pages with names ask first"


@pytest.mark.slow
def test_the_same_addresses_name_models_to_other_readers(lab, as_):
    reader, n_named = as_("operator"), 0
    for method, address in list_addresses(lab):
        if method == "get" and not OF_THE_SITE.match(address):
            n_named += bool(find_names(reader.get(address)))
    assert n_named > 20, "the names would have been found"


def test_no_page_of_the_admin_names_a_model_of_the_experiment(lab, as_):
    BlindReading.start(lab.experiment, lab.people["operator"])
    reader = as_("operator")
    for address in iterate_admin_addresses(lab):
        if not re.search(r"/runs_app/(endpoint|languagemodel)/", address):
            assert not find_names(reader.get(address)), address
    assert QUESTION in reader.get(reverse("admin:runs_app_run_changelist")).content.decode()
    assert QUESTION not in reader.get(reverse("admin:runs_app_prompt_changelist")).content.decode()


@pytest.mark.slow
def test_no_link_figure_or_file_of_an_open_page_names_a_model(lab, as_):
    BlindReading.start(lab.experiment, lab.people["owner"])
    reader = as_("owner")
    waiting = [
        reverse(name, args=["study"]) for name in ("experiment_results", "experiment_matrix", "experiment_analysis")
    ]
    waiting += list_addresses_with_choices(lab)
    visited, n_opened, pictures, files = set(waiting), 0, 0, 0
    while waiting and (n_opened := n_opened + 1) < MAX_ADDRESSES:
        address = waiting.pop(0)
        response = open_when_computed(reader, address)
        text = read_response(response)
        assert not [name for name in NAMES if name in text.lower()], address
        pictures += ".svg" in address and response.status_code == 200
        files += "format=" in address and response.status_code == 200
        links = {unescape(one).partition("#")[0] for one in re.findall(r'(?:href|src|hx-get)="([^"]+)"', text)}
        links = {f"{address.partition('?')[0]}{one}" if one.startswith("?") else one for one in links}
        new = sorted(one for one in links - visited if one.startswith("/") and not OF_THE_SITE.match(one))
        new = [one for one in new if not one.startswith(("/static/", "/admin/"))]
        visited |= set(new)
        waiting += new
    assert pictures > 10, "figures were drawn"
    assert files > 10, "tables were written"


def test_a_view_without_a_mark_asks_a_blind_reader(lab, rf: RequestFactory):
    BlindReading.start(lab.experiment, lab.people["owner"])
    shown = rf.get("/experiments/study/new-page/")
    shown.user = lab.people["owner"]

    class Match:
        route, url_name, app_name = "experiments/<slug:slug>/new-page/", "new_page", ""

    shown.resolver_match = Match
    middleware = BlindPagesMiddleware(lambda request: HttpResponse())
    answer = middleware.process_view(shown, lambda request, slug: HttpResponse("grampus"), (), {"slug": "study"})
    assert QUESTION in answer.content.decode()
    assert middleware.process_view(shown, lambda request, slug: HttpResponse(), (), {"slug": "other"}) is None


def test_a_change_by_an_unmarked_page_is_refused_until_names_are_revealed(lab, as_):
    BlindReading.start(lab.experiment, lab.people["owner"])
    reader, address = as_("owner"), reverse("experiment_edit", args=["study"])
    answer = reader.post(address, {"title": "Other"})
    assert answer.status_code == 403
    assert 'name="next" value=""' in answer.content.decode(), "a form cannot be sent again by a link"
    assert Experiment.objects.get(slug="study").title == "Study"


def test_a_live_part_of_an_open_page_asks_for_the_whole_page(lab, as_):
    BlindReading.start(lab.experiment, lab.people["owner"])
    answer = as_("owner").get(reverse("experiment_progress", args=["study"]), headers={"HX-Request": "true"})
    assert answer.headers["HX-Refresh"] == "true"
    assert not find_names(answer)


@pytest.mark.parametrize("name", ["batch_list", "trial_list"])
def test_a_list_of_another_experiment_opens(name, lab, as_):
    BlindReading.start(lab.experiment, lab.people["owner"])
    factories.make_experiment("other", owner=lab.people["owner"], dataset=lab.experiment.dataset, models=[], prompts=[])
    assert QUESTION not in as_("owner").get(f"{reverse(name)}?experiment=other").content.decode()


@pytest.mark.slow
def test_pages_of_another_experiment_open(lab, as_):
    other = factories.make_experiment("other", owner=lab.people["owner"])
    BlindReading.start(other, lab.people["owner"])
    for method, address in list_addresses(lab):
        if method == "get" and "/study/" in address:
            assert QUESTION not in read_response(as_("owner").get(address)), address
