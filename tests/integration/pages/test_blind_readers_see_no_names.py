"""Every address of the site, opened by a blind reader: no byte names a model of the experiment.

The tests find addresses in the URL configuration, so they include pages that are added later.
"""

import re
from copy import deepcopy
from datetime import timedelta
from decimal import Decimal
from html import unescape

import pytest
from django.contrib import admin
from django.core.cache import cache
from django.db import transaction
from django.http import HttpResponse
from django.test import RequestFactory
from django.urls import reverse
from django.utils import timezone

from grading_app.grading.rating.blind_pages import BlindPagesMiddleware
from grading_app.grading.scoring import grade
from grading_app.models import BlindReading, CachedAggregate, RatingQueue, ShareLink
from grading_app.tasks import compute_aggregates
from runs_app.models import Experiment, LedgerEntry, Preregistration, ProviderBatch, Trial
from runs_app.models.preregistrations import PARTS
from tests import factories
from tests.factories.files import run_in_this_process
from tests.factories.queues import make_queue
from tests.factories.tampering import disable_triggers
from tests.integration.pages.conftest import Lab, _make_draft, build_url_values
from tests.integration.pages.test_access_matrix import MATRIX, list_served_names

NAMES = ("grampus", "narwhal", "skerry", "gemini", "fathom")
"""Parts of the names of models, their slugs, the endpoint, its address and provider, and the served provider."""
OF_THE_SITE = re.compile(
    r"/(endpoints|workers|help|welcome|start|library/(new|judges|rubrics/[^/]+/\d+/test))/|/experiments/new/|/datasets/new/parametric/|/api/v1/models|/metrics"
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


def open_each(reader, addresses):
    """Yield (method, address, response) of each address that belongs to an experiment.

    What an address changes is rolled back: no other one finds a blind reading that it started, or is signed out by it.
    """
    cookies = deepcopy(reader.cookies)
    for method, address in addresses:
        if not OF_THE_SITE.match(address):
            with transaction.atomic():
                yield method, address, getattr(reader, method)(address)
                transaction.set_rollback(True)
            reader.cookies = deepcopy(cookies)


def open_when_computed(client, address):
    response = client.get(address)
    if waiting := list(CachedAggregate.objects.filter(computed_at=None).values_list("pk", flat=True)):
        compute_aggregates(waiting)
        return client.get(address)
    return response


@pytest.mark.parametrize("person", ["owner", pytest.param("operator", marks=pytest.mark.slow)])
def test_no_address_of_the_site_names_a_model_to_a_blind_reader(person, lab, as_):
    BlindReading.start(lab.experiment, lab.people[person])
    addresses = list_addresses(lab) + [("get", one) for one in list_addresses_with_choices(lab)]
    n_asked = 0
    for method, address, response in open_each(as_(person), addresses):
        assert not find_names(response), (method, address)
        n_asked += response.status_code in (200, 403) and QUESTION in read_response(response)
    assert n_asked > 40, "pages with names ask first"


@pytest.mark.slow
def test_the_same_addresses_name_models_to_other_readers(lab, as_):
    n_named = 0
    for method, address in list_addresses(lab):
        if method == "get" and not OF_THE_SITE.match(address):
            n_named += bool(find_names(as_("operator").get(address)))
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


OUTCOMES = [
    {"n_done": 3107021, "n_failed": 2203033, "n_attempts": 8117057, "n_permanent": 1409071, "n_unpriced": 1553089,
     "input_tokens": 71303011, "output_tokens": 58211023, "spent_usd": Decimal("9413.57")},
    {"n_done": 1801043, "n_failed": 3101059, "n_attempts": 7411067, "n_permanent": 1213081, "n_unpriced": 1657093,
     "input_tokens": 60493039, "output_tokens": 47129041, "spent_usd": Decimal("9811.69")},
]  # fmt: skip
"""Counters of each run that tell what came of its calls. No sum equals one of them, and no key of a row is so large."""
ANSWER = "zanzibar"


@pytest.fixture
def planned(lab):
    """Preregister the plan of the running study, with counters and calls that differ between its models."""
    with disable_triggers():
        Preregistration.freeze(lab.experiment, {"design": "", **dict.fromkeys(PARTS, "")}, by="owner")
        for run, counters in zip(lab.experiment.answer_runs.order_by("pk"), OUTCOMES, strict=True):
            type(run).objects.filter(pk=run.pk).update(
                status="running", n_pending=4000000, errors={"refused": counters["n_failed"]}, **counters
            )
            Trial.objects.filter(run=run).update(answer=ANSWER)
            LedgerEntry.objects.filter(run=run).delete()
            LedgerEntry.objects.create(
                run=run, at=timezone.now(), attempts=counters["n_attempts"], answered=counters["n_done"],
                input_tokens=counters["input_tokens"], output_tokens=counters["output_tokens"],
                paid_usd=counters["spent_usd"], list_usd=counters["spent_usd"], refused=counters["n_permanent"],
                unpriced=counters["n_unpriced"],
            )  # fmt: skip
            ProviderBatch.objects.create(
                run=run, endpoint=run.endpoint, n_requests=9001001, n_answered=counters["n_done"],
                n_failed=counters["n_failed"], spent_usd=counters["spent_usd"],
                provider_counts={"failed": counters["n_failed"]},
            )  # fmt: skip
    return lab


def find_outcomes(response):
    """Return the numbers of one run's calls, and the answers, that the response shows."""
    text = re.sub(r"<style.*?</style>|<svg.*?</svg>", "", read_response(response), flags=re.DOTALL)
    text = re.sub(r"(?<=\d)[\u202f,](?=\d{3})", "", text)
    numbers = {str(n) for run in OUTCOMES for n in run.values()}
    return numbers & set(re.findall(r"(?<![\d.])\d+(?:\.\d\d)?", text)) | {ANSWER} & set(re.findall(ANSWER, text))


def find_runs(response, runs):
    """Return the names of models and these addresses of runs in the response. A run's page names its model."""
    text = read_response(response).lower()
    return [name for name in (*NAMES[:2], *runs) if name in text]


@pytest.mark.parametrize("person", ["owner", pytest.param("operator", marks=pytest.mark.slow)])
def test_until_a_plan_ran_no_address_shows_what_came_of_one_models_calls(person, planned, as_):
    by_run = [f"?by={group}" for group in ("run", "model")]
    more = [reverse("experiment_ledger", args=["study"]) + one for one in by_run]
    more += [f"{reverse('ledger')}{one}&experiment=study" for one in by_run] + [f"{reverse('ledger')}{by_run[1]}"]
    more += [f"{reverse('trial_list')}?run={planned.run.pk}", reverse("trial_list")]
    addresses = list_addresses(planned) + [("get", one) for one in list_addresses_with_choices(planned) + more]
    of_runs = [run.get_absolute_url() for run in planned.experiment.runs.all()]
    n_named = n_counted = 0
    for method, address, response in open_each(as_(person), addresses):
        outcomes, runs = find_outcomes(response), find_runs(response, of_runs)
        assert not (outcomes and runs), (method, address, outcomes)
        n_named, n_counted = n_named + bool(runs), n_counted + bool(outcomes)
    assert n_named > 10, "the pages that run the study name its models"
    assert n_counted > 1, "the pages of results have numbers"
