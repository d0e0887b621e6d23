"""Invitation links: each creates one rater and never gives access to another account."""

import csv
import io
import re
from datetime import timedelta

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.test import Client
from django.utils import timezone

from evalsite.lib import permissions
from evalsite.lib.permissions import get_roles
from evalsite.lib.text.hashing import hash_token
from grading_app.grading.rating import queue_results, queues
from grading_app.grading.rating import session as session_module
from grading_app.models import RaterInvitation
from grading_app.models.rating import QueueError
from tests.factories.queues import make_queue, make_rater, rate_all, sign_in

pytestmark = pytest.mark.django_db


def create_token(queue):
    (token,) = queue.invite(1, by=queue.owner)
    return token


def join(token, client=None):
    client = client or Client()
    return client, client.post(f"/ratings/join/{token}/", follow=True)


def test_a_link_makes_an_account_that_can_only_rate():
    queue = make_queue()
    client, response = join(create_token(queue))
    assert response.redirect_chain[-1][0] == "/ratings/study/"
    user = queue.assignments.get().user
    assert get_roles(user) == {permissions.RATER}
    assert not user.has_usable_password()
    assert not user.is_staff
    for beyond in ("/datasets/", "/experiments/", "/trials/", "/ratings/queues/"):
        assert client.get(beyond).status_code == 404


def test_an_invited_rater_chooses_an_alias():
    queue = make_queue()
    token = create_token(queue)
    assert 'name="alias"' in Client().get(f"/ratings/join/{token}/").content.decode()
    client = Client()
    client.post(f"/ratings/join/{token}/", {"alias": " <b>North</b> wind "})
    rater = queue.assignments.get()
    assert rater.alias == "<b>North</b> wind"
    session_module.start_session(rater)
    rate_all(rater)
    page = sign_in(queue.owner).get("/ratings/queues/study/").content.decode()
    assert "&lt;b&gt;North&lt;/b&gt; wind" in page
    (row, *_) = csv.DictReader(io.StringIO("".join(queue_results.iterate_csv_lines(queue))))
    assert row["alias"] == "<b>North</b> wind"
    other = make_rater(queue, started=True)
    assert "North" not in sign_in(other.user).get("/ratings/study/").content.decode()


def test_a_returning_rater_keeps_the_alias():
    queue = make_queue()
    Client().post(f"/ratings/join/{create_token(queue)}/", {"alias": "North wind"})
    new_link = queue.assignments.get().invite_again(by=queue.owner)
    assert 'name="alias"' not in Client().get(f"/ratings/join/{new_link}/").content.decode()
    Client().post(f"/ratings/join/{new_link}/", {"alias": "Another"})
    assert queue.assignments.get().alias == "North wind"


def test_a_too_long_alias_does_not_use_the_link():
    queue = make_queue()
    token = create_token(queue)
    page = Client().post(f"/ratings/join/{token}/", {"alias": "x" * 41})
    assert "at most 40 characters" in page.content.decode()
    assert not queue.assignments.exists()
    assert join(token)[1].status_code == 200


def test_an_invited_rater_can_complete_a_session():
    queue = make_queue()
    client, _ = join(create_token(queue))
    client.post("/ratings/study/start/")
    rate_all(queue.assignments.get())
    assert "Thank you" in client.get("/ratings/study/").content.decode()


def test_opening_a_link_does_not_use_it():
    queue = make_queue()
    token = create_token(queue)
    for _ in range(3):
        assert Client().get(f"/ratings/join/{token}/").status_code == 200
    assert not queue.assignments.exists()
    assert join(token)[1].status_code == 200


def test_a_link_opened_before_its_queue_reports_this_and_stays_valid():
    queue = make_queue(opened=False)
    token = create_token(queue)
    _, early = join(token)
    assert "The study has not started yet" in early.content.decode()
    assert "Take part" not in early.content.decode()
    assert not queue.assignments.exists()
    queues.open_queue(queue, by=queue.owner, reason="ready")
    assert join(token)[1].redirect_chain[-1] == ("/ratings/study/", 302)


def test_a_link_works_once():
    queue = make_queue()
    token = create_token(queue)
    join(token)
    for method in ("get", "post"):
        assert getattr(Client(), method)(f"/ratings/join/{token}/").status_code == 404
    assert queue.assignments.count() == 1


def test_an_expired_link_is_refused():
    queue = make_queue()
    token = create_token(queue)
    RaterInvitation.objects.update(expires_at=timezone.now() - timedelta(seconds=1))
    assert join(token)[1].status_code == 404
    assert not get_user_model().objects.filter(username__startswith="rater-").exists()


def test_a_link_to_a_closed_queue_is_refused():
    queue = make_queue()
    token = create_token(queue)
    queue.close(by=queue.owner, reason="enough")
    assert join(token)[1].status_code == 404


def test_the_database_stores_only_the_hash_of_a_link():
    queue = make_queue()
    token = create_token(queue)
    row = str(RaterInvitation.objects.values().get())
    assert token not in row
    assert hash_token(token) in row


def test_a_new_link_resumes_the_same_session():
    queue = make_queue()
    join(create_token(queue))
    rater = queue.assignments.get()
    session_module.start_session(rater)
    session_module.rate(rater, position=1, value=3, seconds=1)
    token = rater.invite_again(by=queue.owner)
    client, _ = join(token)
    assert "1 of 6" in client.get("/ratings/study/").content.decode()
    assert queue.assignments.count() == 1


def test_accounts_with_a_password_never_get_a_link():
    queue = make_queue()
    rater = make_rater(queue)
    with pytest.raises(QueueError, match="their own account"):
        rater.invite_again(by=queue.owner)


@pytest.mark.parametrize("change", ["role", "password", "superuser"])
def test_a_link_is_invalid_after_its_account_gains_permissions(change):
    queue = make_queue()
    join(create_token(queue))
    rater = queue.assignments.get()
    token = rater.invite_again(by=queue.owner)
    user = get_user_model().objects.get(pk=rater.user_id)
    if change == "role":
        user.groups.add(Group.objects.get(name=permissions.OPERATOR))
    elif change == "password":
        user.set_password("correct horse battery")
    else:
        user.is_superuser = True
    user.save()
    client, response = join(token)
    assert response.status_code == 404
    assert "_auth_user_id" not in client.session


def test_links_are_shown_once_and_never_cached():
    queue = make_queue()
    member = sign_in(queue.owner)
    response = member.post("/ratings/queues/study/invite/", {"count": 3})
    tokens = re.findall(r"/ratings/join/([^/]+)/", response.content.decode())
    assert len(set(tokens)) == 3
    assert "no-store" in response["Cache-Control"]
    page = member.get("/ratings/queues/study/").content.decode()
    assert not any(token in page for token in tokens)
    assert "3 unused links" in page


@pytest.mark.parametrize("count", ["0", "201", "", "many"])
def test_an_invalid_number_of_links_is_refused(count):
    queue = make_queue()
    sign_in(queue.owner).post("/ratings/queues/study/invite/", {"count": count})
    assert not queue.invitations.exists()
