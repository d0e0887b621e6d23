"""The health check, the home page of each role, and changes of endpoints by operators."""

from datetime import timedelta

import pytest
from django.db import DatabaseError, connection
from django.utils import timezone

from runs_app.models import Endpoint, EndpointTick, LanguageModel, Preflight
from tests import factories
from tests.factories.spaces import make_space_experiment
from tests.page_text import page_text


@pytest.mark.django_db
def test_health_says_only_ok_and_needs_no_login(client):
    response = client.get("/healthz")
    answer = {"status": "ok", "workers": "ok", "workers_alive": 0, "oldest_waiting_task_s": None}
    assert (response.status_code, response.json()) == (200, answer)
    assert "django" not in str(response.headers).lower()
    assert response.headers["Cache-Control"].startswith("max-age=0")


@pytest.mark.django_db
def test_health_answers_a_request_with_any_host_name_and_no_other_page_does(client, settings, caplog):
    settings.ALLOWED_HOSTS = ["lab.example.org"]
    settings.SECURE_SSL_REDIRECT = True
    client.cookies["sessionid"] = "of-nobody"
    for host in ("127.0.0.1:8000", "[::1]:8000", "another.example", ""):
        response = client.get("/healthz", headers={"Host": host})
        assert response.status_code == 200
        assert (response.cookies, response.headers["X-Content-Type-Options"]) == ({}, "nosniff")
        assert host not in response.content.decode() or not host
    assert client.post("/healthz").status_code == 405
    settings.SECURE_SSL_REDIRECT = False
    assert client.get("/accounts/login/", headers={"Host": "another.example"}).status_code == 400


def test_health_says_503_when_the_database_does_not_answer(client, monkeypatch):
    def raise_error():
        raise DatabaseError("secret details of the server")

    monkeypatch.setattr(connection, "cursor", raise_error)
    response = client.get("/healthz")
    assert (response.status_code, response.json()) == (503, {"status": "unavailable"})


def open_home(client):
    return client.get("/").content.decode()


def test_an_empty_site_shows_a_researcher_the_first_steps(as_):
    page = open_home(as_("researcher"))
    assert "Import a dataset" in page
    assert "/experiments/new/" in page
    assert 'href="/start/"' in page


def test_the_first_steps_disappear_when_they_are_done(lab, as_):
    assert "What comes next" not in open_home(as_("owner"))


def test_home_shows_running_experiments_that_the_user_may_see(lab, as_):
    assert "Running now" in open_home(as_("owner"))
    assert "pilot" not in open_home(as_("researcher"))
    assert "No experiments yet" in open_home(as_("viewer"))


@pytest.mark.django_db
def test_home_leads_to_the_surface_of_a_parametric_experiment_and_to_the_leaderboard(client):
    experiment = make_space_experiment("space")
    client.force_login(experiment.owner)
    page = open_home(client)
    assert 'href="/experiments/space/explorer/">Surface' in page
    assert 'href="/leaderboard/">Task leaderboard' in page
    factories.make_experiment("plain", owner=experiment.owner, dataset=factories.make_dataset("plain"))
    assert "/experiments/plain/explorer/" not in open_home(client)


def test_a_rater_is_redirected_to_their_items_and_finds_no_experiment(lab, as_):
    response = as_("rater").get("/", follow=True)
    page = response.content.decode()
    assert response.redirect_chain[-1][0] == f"/ratings/{lab.queue.name}/"
    for word in ("pilot", "/experiments/", "/datasets/", "/trials/", "/endpoints/"):
        assert word not in page


ENDPOINT = {"name": "lab", "provider": "openai", "base_url": "http://127.0.0.1:9/v1", "key_env": "EVALSITE_KEY_LAB",
            "day_zone": "UTC", "max_concurrency": 4, "is_active": "on",
    "batch_api": "none",
    "batch_max_requests": "5000",
    "batch_max_open": "4",
}  # fmt: skip


def test_an_operator_adds_an_endpoint_and_a_model(as_):
    client = as_("operator")
    assert client.post("/endpoints/new/", ENDPOINT).status_code == 302
    endpoint = Endpoint.objects.get()
    assert endpoint.key_env == "EVALSITE_KEY_LAB"
    model = {"name": "small", "endpoint": endpoint.pk, "model": "vendor/small", "input_price": "0.5", "is_active": "on"}
    model["batch_discount"] = "0.5"
    response = client.post("/endpoints/models/new/", model)
    assert "the source of the prices" in " ".join(response.context["form"].errors["price_source"])
    model["price_source"] = "the price list"
    assert client.post("/endpoints/models/new/", model).status_code == 302
    assert LanguageModel.objects.get().output_price is None
    assert LanguageModel.objects.get().price_date == timezone.now().date()
    assert "unknown" in client.get("/endpoints/").content.decode()


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("base_url", "http://evil.example/v1", "not on the list of allowed hosts"),
        ("base_url", "file:///etc/passwd", "must start with http"),
        ("base_url", "http://user:secret@127.0.0.1/", "must not hold a name or a password"),
        ("key_env", "sk-live-123", "environment variable"),
        ("key_env", "DATABASE_URL", "such as OPENAI_API_KEY or EVALSITE_KEY_LAB"),
        ("key_env", "EVALSITE_SECRET_KEY", "is never sent to a provider"),
        ("name", "Not a slug", "small letters"),
        ("max_concurrency", "0", "Must be between 1 and 100,000."),
        ("requests_per_day", "99999999999", "Must be between 1 and 1,000,000,000."),
    ],
)
def test_an_error_appears_at_its_field(as_, field, value, message):
    response = as_("operator").post("/endpoints/new/", {**ENDPOINT, field: value})
    assert message in " ".join(response.context["form"].errors[field])
    assert not Endpoint.objects.exists()


def test_a_researcher_sees_endpoints_and_cannot_change_them(lab, as_):
    page = as_("researcher").get("/endpoints/").content.decode()
    assert "vendor/small" in page
    assert "/edit/" not in page
    assert as_("researcher").post(f"/endpoints/{lab.model.endpoint_id}/edit/", ENDPOINT).status_code == 404


@pytest.mark.slow
def test_a_worker_makes_the_test_call_and_the_page_polls_its_result(
    lab, as_, monkeypatch, django_capture_on_commit_callbacks
):
    tasks = []
    monkeypatch.setattr("django_q.tasks.async_task", lambda *call: tasks.append(call))
    address = f"/endpoints/models/{lab.model.pk}/check/"
    with django_capture_on_commit_callbacks(execute=True):
        part = as_("researcher").post(address, headers={"HX-Request": "true"}).content.decode()
    waiting = Preflight.objects.get()
    assert tasks == [("runs_app.tasks.make_preflight", waiting.pk)]
    assert (waiting.model, waiting.actor, waiting.experiment) == (lab.model, "researcher", None)
    assert 'hx-trigger="every 300ms"' in part
    Preflight.objects.update(status="dead", error="HTTP 401: no key")
    part = as_("researcher").get(f"/endpoints/models/{lab.model.pk}/status/").content.decode()
    assert "HTTP 401: no key" in part
    assert "hx-trigger" not in part


def test_the_list_of_endpoints_takes_a_constant_number_of_queries(lab, as_, django_assert_num_queries):
    client = as_("operator")
    client.get("/endpoints/")
    with django_assert_num_queries(11):
        client.get("/endpoints/")
    for number in range(4):
        factories.make_preflight(factories.make_model(f"m{number}", endpoint=factories.make_endpoint(f"e{number}")))
    with django_assert_num_queries(11):
        client.get("/endpoints/")


def test_an_endpoint_shows_its_learned_limit_its_rates_and_its_curve(lab, as_):
    now = timezone.now().replace(microsecond=0)
    Endpoint.objects.update(
        in_flight=3, max_concurrency=50, requests_per_day=1000, throttle={"limit": 11.7, "today": 42}
    )
    for back, limit in ((30, 16.0), (20, 11.2), (10, 11.7)):
        EndpointTick.objects.create(
            endpoint_id=lab.model.endpoint_id, at=now - timedelta(seconds=back), concurrency=limit
        )
    page = page_text(as_("researcher").get("/endpoints/"))
    assert "3 of 11" in page
    assert "learned limit; maximum 50" in page
    assert "42 of 1\u202f000 today" in page
    assert "the highest was 16" in page
    live = as_("researcher").get(f"/endpoints/{lab.model.endpoint_id}/live/").content.decode()
    assert 'hx-trigger="every 5s"' in live


def test_a_zone_that_does_not_exist_is_refused(as_):
    response = as_("operator").post("/endpoints/new/", {**ENDPOINT, "day_zone": "Mars/Base"})
    assert "time zone" in " ".join(response.context["form"].errors["day_zone"])


def test_an_empty_optional_choice_reads_none(as_):
    text = as_("operator").get("/endpoints/new/").content.decode()
    assert '<option value="" selected>None</option>' in text
    assert "-----" not in text
