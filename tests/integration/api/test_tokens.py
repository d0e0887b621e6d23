"""Access tokens: how they are made, what they permit, and when they end."""

import json
import logging
from datetime import timedelta

import pytest
import time_machine
from django.contrib.auth.models import Group
from django.test import Client
from django.urls import reverse
from django.utils import timezone

from evalsite.api import token_middleware
from evalsite.lib import permissions
from evalsite.lib.history import StatusChange
from runs_app.models import ApiAllowance, ApiToken
from tests import factories
from tests.factories.tokens import make_api_client, make_bearer, make_token

pytestmark = pytest.mark.django_db

LIST = "/api/v1/experiments"


def list_names(client):
    return [row["name"] for row in client.get(LIST).json()["items"]]


def test_a_token_reads_what_its_account_may_see(team, pilot):
    assert list_names(make_api_client(team.owner)) == ["pilot"]
    assert list_names(make_api_client(team.operator)) == ["pilot"]
    assert list_names(make_api_client(team.teammate)) == []


def test_the_database_holds_no_part_of_the_secret(team):
    token, text = make_token(team.owner)
    secret = text.rpartition("_")[2] if text.count("_") == 2 else text.split("_", 2)[2]
    token.refresh_from_db()
    stored = " ".join(str(getattr(token, field.attname)) for field in ApiToken._meta.concrete_fields)
    history = " ".join(map(str, StatusChange.objects.values_list("to_value", "reason", "from_value")))
    assert secret not in stored + history
    assert len(secret) >= 43


@pytest.mark.parametrize("text", ["", "x", "evs_", "evs__", "evs_000000000000_x", "evs_\x00_x", "Ä" * 500])
def test_any_other_text_is_no_token(text, team):
    make_token(team.owner)
    assert ApiToken.objects.find(text) is None


def test_the_public_part_with_another_secret_is_no_token(team):
    token, text = make_token(team.owner)
    assert ApiToken.objects.find(text) == token
    assert ApiToken.objects.find(f"{token}_{'A' * 43}") is None
    assert ApiToken.objects.find(text[:-1]) is None


def test_without_a_token_the_answer_is_401_and_no_redirect():
    answer = Client().get(LIST)
    assert answer.status_code == 401
    assert answer["Content-Type"] == "application/problem+json"
    assert answer["WWW-Authenticate"].startswith("Bearer")


@pytest.mark.parametrize("name", ["token", "access_token", "api_key", "Authorization"])
def test_a_token_in_the_address_is_not_accepted(name, team, pilot):
    _, text = make_token(team.owner)
    assert Client().get(LIST, {name: text}).status_code == 401
    assert Client().post(LIST, {name: text}).status_code == 401
    client = Client()
    client.cookies[name] = text
    assert client.get(LIST).status_code == 401


@pytest.mark.parametrize("scheme", ["Basic", "Token", ""])
def test_only_the_bearer_scheme_is_accepted(scheme, team):
    _, text = make_token(team.owner)
    assert Client(headers={"Authorization": f"{scheme} {text}".strip()}).get(LIST).status_code == 401


def test_a_revoked_token_ends_at_once(team, pilot):
    token, text = make_token(team.owner)
    client = make_bearer(text)
    assert client.get(LIST).status_code == 200
    token.revoke(by=team.owner)
    assert client.get(LIST).status_code == 401


def test_a_token_expires(team):
    _, text = make_token(team.owner, days=7)
    with time_machine.travel(timezone.now() + timedelta(days=7, seconds=1)):
        assert make_bearer(text).get(LIST).status_code == 401


def test_a_token_ends_with_its_account(team):
    _, text = make_token(team.owner)
    _, other = make_token(team.teammate)
    team.owner.is_active = False
    team.owner.save()
    assert make_bearer(text).get(LIST).status_code == 401
    team.teammate.delete()
    assert make_bearer(other).get(LIST).status_code == 401


def test_a_changed_role_counts_at_the_next_request(team, pilot):
    client = make_api_client(team.operator)
    assert list_names(client) == ["pilot"]
    team.operator.groups.set(Group.objects.filter(name=permissions.RATER))
    assert client.get(LIST).status_code == 404


def test_a_session_beside_a_token_does_not_count(team, pilot, client):
    client.force_login(team.operator)
    _, text = make_token(team.teammate)
    assert client.get(LIST, headers={"Authorization": f"Bearer {text}"}).json()["items"] == []
    assert client.get(LIST, headers={"Authorization": "Bearer wrong"}).status_code == 401


def test_a_session_reads_but_changes_nothing_without_its_csrf_token(team, pilot):
    client = Client(enforce_csrf_checks=True)
    client.force_login(team.owner)
    assert client.get(LIST).status_code == 200
    pause = f"{LIST}/pilot/pause"
    answer = client.post(pause, "{}", content_type="application/json")
    assert (answer.status_code, answer["Content-Type"]) == (403, "application/problem+json")
    client.get(reverse("token_list"))
    headers = {"X-CSRFToken": client.cookies["csrftoken"].value}
    assert client.post(pause, "{}", content_type="application/json", headers=headers).status_code == 200


@pytest.mark.parametrize(
    ("scope", "statuses"), [("read", (200, 403, 403)), ("run", (200, 200, 403)), ("admin", (200, 200, 200))]
)
def test_each_scope_permits_its_operations(scope, statuses, team, pilot):
    client = make_api_client(team.owner, scope)
    body = {"content_type": "application/json", "data": {"reason": "test"}}
    answers = [
        client.get(f"{LIST}/pilot"),
        *(client.post(f"{LIST}/pilot/{verb}", **body) for verb in ("pause", "cancel")),
    ]
    assert tuple(answer.status_code for answer in answers) == statuses


def test_a_token_of_one_experiment_reaches_no_other(team, pilot):
    factories.make_experiment("other", owner=team.owner)
    client = make_api_client(team.owner, experiment=pilot)
    assert list_names(client) == ["pilot"]
    assert client.get(f"{LIST}/other").status_code == 404
    assert [row["name"] for row in client.get("/api/v1/datasets").json()["items"]] == [pilot.dataset.slug]
    answer = client.post(LIST, {"file": "experiment: x"}, content_type="application/json")
    assert answer.status_code == 403
    assert "pilot" in answer.json()["detail"]


def test_an_admin_token_of_a_viewer_changes_nothing(team, pilot):
    pilot.share("group", by=team.owner)
    client = make_api_client(team.outsider)
    assert client.get(f"{LIST}/pilot").status_code == 200
    assert client.post(f"{LIST}/pilot/pause", {}, content_type="application/json").status_code == 404


def test_the_last_use_is_stored(team):
    token, text = make_token(team.owner)
    make_bearer(text).get(LIST)
    token.refresh_from_db()
    assert token.last_used_at is not None


def test_all_tokens_of_an_account_share_one_limit(team, monkeypatch):
    monkeypatch.setattr(ApiAllowance, "BURST", 3)
    monkeypatch.setattr(ApiAllowance, "PER_SECOND", 0)
    clients = [make_api_client(team.owner), make_api_client(team.owner)]
    statuses = [clients[n % 2].get(LIST).status_code for n in range(5)]
    assert statuses == [200, 200, 200, 429, 429]
    assert make_api_client(team.teammate).get(LIST).status_code == 200


def test_the_limit_refills(team, monkeypatch):
    monkeypatch.setattr(ApiAllowance, "BURST", 1)
    assert ApiAllowance.take(team.owner)
    ApiAllowance.objects.filter(user=team.owner).update(at=timezone.now() - timedelta(seconds=5))
    assert ApiAllowance.take(team.owner)


def test_an_address_that_guesses_has_to_wait_and_right_tokens_go_on(team, monkeypatch):
    monkeypatch.setattr(token_middleware, "MAX_GUESSES", 2)
    wrong = make_bearer("evs_000000000000_wrong")
    assert [wrong.get(LIST).status_code for _ in range(3)] == [401, 401, 429]
    assert make_api_client(team.owner).get(LIST).status_code == 200


def test_no_log_names_a_token(team, pilot, caplog):
    _, text = make_token(team.owner)
    client = make_bearer(text)
    with caplog.at_level(logging.DEBUG):
        client.get(LIST)
        client.get(f"{LIST}/missing")
        make_bearer(text + "x").get(LIST)
    assert text not in caplog.text


def test_making_and_revoking_are_in_the_history(team):
    token, _ = make_token(team.owner, "run", label="laptop")
    token.revoke(by=team.operator)
    revoked, made = token.history
    assert (made.by, made.reason) == (team.owner, "laptop")
    assert made.to_value.startswith("run, all experiments, until ")
    assert (revoked.by, revoked.to_value) == (team.operator, "revoked")


def test_the_page_shows_a_new_token_once(team, client):
    client.force_login(team.owner)
    fields = {"label": "laptop", "scope": "run", "days": "30", "experiment": ""}
    page = client.post(reverse("token_list"), fields)
    token = ApiToken.objects.get()
    text = page.context["text"]
    assert ApiToken.objects.find(text) == token
    assert text in page.content.decode()
    assert page["Cache-Control"] == "private, no-store"
    assert text.split("_", 2)[2] not in client.get(reverse("token_list")).content.decode()


def test_people_revoke_their_own_tokens_and_operators_all(team, client):
    token, _ = make_token(team.owner)
    address = reverse("token_revoke", args=[token.pk])
    client.force_login(team.teammate)
    assert client.post(address).status_code == 404
    assert str(token) not in client.get(reverse("token_list")).content.decode()
    client.force_login(team.operator)
    assert str(token) in client.get(reverse("token_list")).content.decode()
    assert client.post(address).status_code == 302
    token.refresh_from_db()
    assert token.state == "revoked"


def test_the_page_offers_a_viewer_only_reading(team, client):
    client.force_login(team.outsider)
    fields = {"label": "x", "scope": "admin", "days": "30"}
    assert "scope" in client.post(reverse("token_list"), fields).context["form"].errors
    assert not ApiToken.objects.exists()


def test_a_token_is_limited_only_to_an_experiment_that_the_account_sees(team, pilot, client):
    client.force_login(team.teammate)
    fields = {"label": "x", "scope": "read", "days": "30", "experiment": "pilot"}
    assert "experiment" in client.post(reverse("token_list"), fields).context["form"].errors


def test_a_token_of_one_experiment_ends_with_it(team):
    draft = factories.make_experiment("draft", owner=team.owner)
    _, text = make_token(team.owner, experiment=draft)
    from runs_app import deletion

    deletion.delete(draft, by=team.owner, reason="test")
    assert make_bearer(text).get(LIST).status_code == 401
    assert json.loads(make_bearer(text).get(LIST).content)["status"] == 401
