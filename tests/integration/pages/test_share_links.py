"""Share links: their content, who creates and revokes them, and that they open nothing else."""

import io
import re
import zipfile
from datetime import timedelta
from decimal import Decimal

import pytest
from django.contrib.auth.models import User
from django.test import Client
from django.urls import reverse
from django.utils import timezone
from django.utils.http import urlencode

from evalsite.lib import permissions
from evalsite.lib.models import FailedSignIn
from grading_app.models import CachedAggregate, RaterAssignment, ShareLink
from grading_app.publish.figures.figure_set import FigureSource
from grading_app.publish.report.build import build_document
from grading_app.publish.report.document import FigureBlock
from grading_app.results.scores import list_measures
from grading_app.tasks import compute_aggregates
from grading_app.views import share_links
from runs_app.models import Endpoint
from tests import factories
from tests.factories.gradings import make_answered_experiment, make_gradings
from tests.factories.studies import make_whole_study
from tests.page_text import page_text
from tests.shared_rows import shared_rows

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("plain_pictures")]

OWNER = "zelda-of-the-lab"


@shared_rows
def study():
    owner = factories.make_user(OWNER, permissions.RESEARCHER)
    dimensions = [factories.make_dimension("valence")]
    fields = {"dimensions": dimensions, "owner": owner, "max_usd": Decimal(BUDGET)}
    return make_answered_experiment("study", items=6, models=("a", "b"), **fields)


def make_link(study, scope="report", *, days=7, **fields):
    expires = timezone.now() + timedelta(days=days)
    return ShareLink.create(study, scope, expires, **{"by": study.owner, **fields})


PARTS = {
    "shared_report": [],
    "shared_report_file": ["html"],
    "shared_report_figure": ["ratings"],
    "shared_leaderboard": [],
    "shared_design": [],
    "shared_figures": [],
    "shared_figure": ["ratings"],
}
SHOWN = {
    "report": {"shared_report", "shared_report_file", "shared_report_figure"},
    "leaderboard": {"shared_leaderboard"},
    "experiment": set(PARTS),
}


def build_part_address(name, token):
    return reverse(name, args=[token, *PARTS[name]])


def compute_page(client, token):
    client.get(build_part_address("shared_report", token))
    compute_aggregates(list(CachedAggregate.objects.values_list("pk", flat=True)))


@pytest.mark.slow
@pytest.mark.parametrize("scope", SHOWN)
def test_a_link_shows_its_part_and_nothing_else(client, study, scope):
    _, token = make_link(study, "experiment")
    compute_page(client, token)
    _, token = make_link(study, scope)
    answers = {name: client.get(build_part_address(name, token)) for name in PARTS}
    assert {name for name, answer in answers.items() if answer.status_code == 200} == SHOWN[scope]
    assert {answer.status_code for answer in answers.values()} <= {200, 404}
    for answer in answers.values():
        assert answer["Cache-Control"] == "no-store"
        assert answer["Referrer-Policy"] == "no-referrer"
        assert "noindex" in answer["X-Robots-Tag"]
        content = b"".join(answer) if answer.streaming else answer.content
        assert OWNER.encode() not in content
        assert b"csrf" not in content
        assert b'method="post"' not in content
        assert not answer.cookies
    start = client.get(reverse("shared", args=[token]), follow=True)
    assert start.status_code == 200
    assert not client.session.items(), "a link signs nobody in"


def read_texts(answer):
    """Return the text of a response; for a zip file, the text of all parts except PDF and PNG files."""
    content = b"".join(answer) if answer.streaming else answer.content
    if not content.startswith(b"PK"):
        return content.decode(errors="replace")
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        names = [name for name in archive.namelist() if not name.endswith((".pdf", ".png"))]
        return "\n".join(archive.read(name).decode() for name in names)


@pytest.mark.slow
def test_no_part_of_a_link_names_a_user_a_rater_or_an_endpoint(client, transactional_db):
    study = make_whole_study()
    for user in User.objects.all():
        user.username, user.email = f"wilhelmina{user.pk}", f"wilhelmina{user.pk}@lab.example"
        user.first_name, user.last_name = "Wilhelmina", "Quackenbush"
        user.save()
    RaterAssignment.objects.update(alias="quackenbush")
    for endpoint in Endpoint.objects.all():
        endpoint.base_url, endpoint.key_env = "https://quackenbush.example/v1", "EVALSITE_KEY_WILHELMINA"
        endpoint.save()
    names = ("wilhelmina", "quackenbush")
    study.snapshots.update(label="by hand")
    _, token = make_link(study, "experiment", shows_costs=True)
    compute_page(client, token)
    client.get(build_part_address("shared_figures", token))
    compute_page(client, token)
    document = build_document(study)
    assert "human rater" in str(document.dump()), "people are part of this study"
    figures = [reverse("shared_figure", args=[token, one.name]) for one in FigureSource(study).list_figures()]
    pages = [build_part_address(name, token) for name in PARTS if name not in ("shared_figure", "shared_report_figure")]
    files = [reverse("shared_report_file", args=[token, kind]) for kind in ("html", "zip")]
    figure_addresses = [
        reverse("shared_report_figure", args=[token, one.name]) for one in document.list_blocks(FigureBlock)
    ]
    assert len(figures) > 5
    for address in [*pages, *files, *figures, *figure_addresses]:
        answer = client.get(address)
        assert answer.status_code == 200, address
        text = read_texts(answer).lower()
        assert not [name for name in names if name in text], address


def test_the_figures_of_a_shared_experiment_follow_the_measure(client, study):
    make_gradings(study, "numeric", lambda trial: float(trial.item.position % 2), kind="rule")
    _, token = make_link(study, "experiment")
    page = client.get(build_part_address("shared_figures", token))
    (key,) = [one.key for one in list_measures(study) if not one.is_rating]
    query = f"?{urlencode({'measure': key})}"
    assert f'href="{query}"' in page.content.decode()
    chosen = client.get(build_part_address("shared_figures", token) + query)
    addresses = re.findall(r'src="(/shared/[^"]+)"', chosen.content.decode())
    assert addresses
    assert all(address.endswith(query) for address in addresses)
    assert client.get(addresses[0]).status_code == 200
    for address in (build_part_address("shared_figures", token), build_part_address("shared_figure", token)):
        assert client.get(address, {"measure": "nothing"}).status_code == 404


def test_a_link_reaches_only_its_own_experiment(client, study):
    """Parameters in the address of a link do not change its experiment."""
    make_answered_experiment("other", items=3, models=("rival-model",))
    _, token = make_link(study, "experiment")
    compute_page(client, token)
    plain = {name: read_texts(client.get(build_part_address(name, token))) for name in PARTS}
    query = {"experiment": "other", "slug": "other", "wave": "0", "snapshot": "0" * 64}
    for name in PARTS:
        text = read_texts(client.get(build_part_address(name, token), query))
        assert "rival-model" not in text
        assert text == plain[name]


BUDGET = "7.31"
COST_WORDS = ("budget", f"${BUDGET}", "cost by", "costs by stage", "$0.00", "paid", "score against cost", "median cost")


def find_shown_costs(client, token):
    """Return words about money in each part of a link."""
    words_by_part = {}
    for name in PARTS:
        answer = client.get(build_part_address(name, token))
        text = read_texts(answer).lower()
        words_by_part[name] = [word for word in COST_WORDS if word in text]
    return {name: words for name, words in words_by_part.items() if words}


@pytest.mark.slow
def test_shared_pages_omit_costs_unless_the_author_includes_them(client, study):
    _, token = make_link(study, "experiment")
    compute_page(client, token)
    assert find_shown_costs(client, token) == {}
    bundle = read_texts(client.get(reverse("shared_report_file", args=[token, "zip"]))).lower()
    assert [word for word in COST_WORDS if word in bundle] == []
    cost_figures = [
        name
        for name in ("cost-d1", "cost-valence")
        if client.get(reverse("shared_figure", args=[token, name])).status_code == 200
    ]
    assert cost_figures == []
    client.force_login(study.owner)
    form = {"scope": "experiment", "days": "7", "label": "", "shows_costs": "on"}
    page = client.post(reverse("share_links", args=["study"]), form)
    assert ", with costs" in page_text(page)
    assert ShareLink.objects.filter(shows_costs=True).count() == 1
    client.logout()
    _, token = make_link(study, "experiment", shows_costs=True)
    shown = find_shown_costs(client, token)
    assert {"shared_report", "shared_report_file", "shared_leaderboard"} <= set(shown)
    assert {"budget", f"${BUDGET}"} <= set(shown["shared_report"])


def test_guessed_expired_revoked_and_foreign_links_give_the_same_answer(client, study):
    other = make_answered_experiment("other", items=2)
    _, expired = make_link(study, "experiment", days=-1)
    deleted, revoked = make_link(study, "experiment")
    deleted.revoke(by=study.owner)
    _, narrow = make_link(other, "leaderboard")
    tokens = ["guessed", "a" * 43, expired, revoked, "x' OR 1=1--", deleted.token_hash]
    answers = [client.get(build_part_address("shared_report", token)) for token in [*tokens, narrow]]
    assert {answer.status_code for answer in answers} == {404}
    assert len({answer.content for answer in answers}) == 1
    assert len({str(sorted(answer.headers.items())) for answer in answers}) == 1
    assert client.get(build_part_address("shared_leaderboard", narrow)).status_code == 200


@pytest.mark.parametrize("end", ["deactivate", "delete"])
def test_a_link_ends_with_the_account_of_its_author(client, study, end):
    """The experiment stays, with its other links, because it may have another owner by then."""
    colleague = factories.make_user("colleague", permissions.RESEARCHER)
    link, token = make_link(study, "leaderboard", by=colleague)
    _, other = make_link(study, "leaderboard")
    address = build_part_address("shared_leaderboard", token)
    assert client.get(address).status_code == 200
    if end == "delete":
        colleague.delete()
    else:
        User.objects.filter(pk=colleague.pk).update(is_active=False)
    gone = client.get(address)
    assert gone.status_code == 404
    assert gone.content == client.get(build_part_address("shared_leaderboard", "a" * 43)).content
    assert client.get(build_part_address("shared_leaderboard", other)).status_code == 200
    client.force_login(study.owner)
    page = page_text(client.get(reverse("share_links", args=["study"])))
    assert "without author" in page
    assert reverse("share_link_revoke", args=["study", link.pk]) not in page


def test_a_token_reaches_no_other_page(client, study):
    _, token = make_link(study, "experiment")
    for name, args in (
        ("experiment_report", ["study"]),
        ("experiment_results", ["study"]),
        ("experiment_export", ["study", "trials", "csv"]),
        ("share_links", ["study"]),
        ("figure_file", ["study", "ratings", "csv"]),
    ):
        answer = client.get(reverse(name, args=args), {"token": token}, headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == 302
        assert reverse("login") in answer["Location"]
    for path in ("export/trials.csv", "trials/", "../study/", "snapshots/", "links/"):
        assert client.get(f"/shared/{token}/{path}").status_code in (302, 404)
        assert b"sample_idx" not in client.get(f"/shared/{token}/{path}").content


@pytest.mark.parametrize("method", ["post", "put", "delete", "patch"])
def test_a_link_only_reads(client, study, method):
    _, token = make_link(study, "experiment")
    for name in PARTS:
        assert getattr(client, method)(build_part_address(name, token)).status_code == 405
    assert ShareLink.objects.usable().count() == 1


def test_a_revoked_link_ends_immediately_and_the_history_records_it(client, study):
    link, token = make_link(study, "leaderboard", label="reviewers")
    address = build_part_address("shared_leaderboard", token)
    assert client.get(address).status_code == 200
    client.force_login(study.owner)
    assert client.post(reverse("share_link_revoke", args=["study", link.pk])).status_code == 302
    client.logout()
    assert client.get(address).status_code == 404
    changes = list(study.history.filter(aspect="share link").order_by("pk"))
    assert [one.by for one in changes] == [study.owner] * 2
    assert "leaderboard" in changes[0].to_value
    assert changes[1].to_value == "revoked"


def test_the_address_is_shown_once_and_only_its_hash_is_stored(client, study):
    client.force_login(study.owner)
    page = reverse("share_links", args=["study"])
    response = client.post(page, {"scope": "report", "days": "30", "label": "reviewers"})
    (link,) = ShareLink.objects.all()
    address = response.context["address"]
    token = address.rstrip("/").rpartition("/")[2]
    assert len(token) >= 43, "256 bits"
    assert link.token_hash != token
    assert token not in str([*ShareLink.objects.values(), *study.history.values()])
    assert response["Cache-Control"] == "private, no-store"
    assert address not in client.get(page).content.decode()
    assert "reviewers" in page_text(client.get(page))
    assert timedelta(days=29) < link.expires_at - timezone.now() < timedelta(days=31)


def test_each_active_link_has_a_button_that_revokes_it(study):
    active, revoked = make_link(study)[0], make_link(study)[0]
    revoked.revoke(by=study.owner)
    client = Client(enforce_csrf_checks=True)
    client.force_login(study.owner)
    page = page_text(client.get(reverse("share_links", args=["study"])))
    address = reverse("share_link_revoke", args=["study", active.pk])
    (token,) = re.findall(rf'action="{address}"> <input type="hidden" name="csrfmiddlewaretoken" value="(\w+)">', page)
    assert reverse("share_link_revoke", args=["study", revoked.pk]) not in page
    assert client.post(address, {"csrfmiddlewaretoken": token}).status_code == 302
    active.refresh_from_db()
    assert active.state == "revoked"


def test_an_invalid_choice_creates_no_link(client, study):
    client.force_login(study.owner)
    page = reverse("share_links", args=["study"])
    for data in ({"scope": "database", "days": "30"}, {"scope": "report", "days": "100000"}, {}):
        assert client.post(page, data).context["form"].errors
    assert not ShareLink.objects.exists()


def test_only_editors_list_create_and_revoke_links(client, study):
    link, _ = make_link(study)
    study.share("group", by=study.owner)
    other = make_answered_experiment("other", items=2)
    for person in (factories.make_user("reader", permissions.RESEARCHER), other.owner):
        client.force_login(person)
        assert client.get(reverse("share_links", args=["study"])).status_code == 404
        assert client.post(reverse("share_links", args=["study"]), {"scope": "report", "days": 7}).status_code == 404
        assert client.post(reverse("share_link_revoke", args=["study", link.pk])).status_code == 404
    client.force_login(other.owner)
    assert client.post(reverse("share_link_revoke", args=["other", link.pk])).status_code == 404
    link.refresh_from_db()
    assert link.state == "active"


def test_a_client_that_guesses_tokens_is_rate_limited(client, study, monkeypatch):
    monkeypatch.setattr(share_links, "MAX_GUESSES", 3)
    _, token = make_link(study, "leaderboard")
    for _ in range(5):
        assert client.get(build_part_address("shared_leaderboard", token)).status_code == 200, (
            "right tokens do not count"
        )
    for at in range(3):
        assert client.get(build_part_address("shared_leaderboard", f"guess-{at}")).status_code == 404
    response = client.get(build_part_address("shared_leaderboard", token))
    assert response.status_code == 429
    assert int(response["Retry-After"]) > 0
    assert FailedSignIn.objects.filter(key__startswith="shared ").count() == 3
