"""Signing in again leads to a page, never to an address that accepts only POST."""

from django.test import Client
from django.urls import reverse

from evalsite.lib.web.sign_in import accepts_get, find_nearest_page
from tests.integration.pages.test_access_matrix import MATRIX, NO_TOKEN, list_served_names

SITE = "http://testserver"
# A program that calls the API without a token gets 401 and no page.
FORMS = [
    name for name, row in MATRIX.items() if row.method == "post" and row.expected[0] != NO_TOKEN and name != "logout"
]


def sign_in_again(client, person, address):
    """Return the address to which a user is redirected after signing in."""
    person.set_password("long enough to be a password")
    person.save()
    form = {"username": person.username, "password": "long enough to be a password"}
    return client.post(address, form, follow=True)


def test_a_form_sent_after_expiry_leads_to_a_page(lab, url_values):
    """Forms of one page lead to the same address, which is opened once."""
    forms = {}
    for name in FORMS:
        address = reverse(name, args=[url_values.get(word, word) for word in MATRIX[name].args.split()])
        assert not is_its_own_nearest_page(address), name
        refused_response = Client().post(address)
        assert refused_response.status_code == 302, name
        forms.setdefault(refused_response["Location"], []).append(name)
    assert len(FORMS) > 40
    for location, names in forms.items():
        response = sign_in_again(Client(), lab.people["operator"], location)
        assert response.status_code != 405, names
        assert response.request["REQUEST_METHOD"] == "GET", names


def is_its_own_nearest_page(address):
    return find_nearest_page(address) == address


def test_signing_in_returns_to_the_requested_page(url_values):
    names = [name for name in list_served_names() if MATRIX[name].method == "get"]
    assert len(names) > 100
    addresses = {
        name: reverse(name, args=[url_values.get(word, word) for word in MATRIX[name].args.split()]) for name in names
    }
    assert [name for name, address in addresses.items() if not is_its_own_nearest_page(address)] == []


def test_the_page_of_the_form_is_shown_again_with_its_filters(lab, client):
    page = f"{reverse('experiment_progress', args=['pilot'])}?wave=1"
    refused_response = client.post(
        reverse("experiment_action", args=["pilot", "pause"]), headers={"Referer": SITE + page}
    )
    response = sign_in_again(client, lab.people["owner"], refused_response["Location"])
    assert (response.status_code, response.request["PATH_INFO"]) == (200, page.partition("?")[0])
    assert response.request["QUERY_STRING"] == "wave=1"


def test_a_page_of_another_site_is_never_a_redirect_target(lab, client):
    address = reverse("experiment_archive", args=["pilot"])
    refused_response = client.post(address, headers={"Referer": "https://evil.example/experiments/pilot/"})
    assert refused_response["Location"] == "/accounts/login/?next=/experiments/pilot/"


def test_an_old_link_to_a_post_only_url_leads_to_its_parent_page(lab, client):
    address = f"/accounts/login/?next={reverse('experiment_archive', args=['pilot'])}"
    response = sign_in_again(client, lab.people["owner"], address)
    assert (response.status_code, response.request["PATH_INFO"]) == (200, "/experiments/pilot/")


def test_a_live_part_redirects_the_whole_page_to_the_sign_in_page(lab, client):
    page = reverse("experiment_progress", args=["pilot"])
    answer = client.get(page, headers={"HX-Request": "true", "HX-Current-URL": f"{SITE}{page}?wave=1"})
    assert answer.status_code == 204
    assert answer["HX-Redirect"] == "/accounts/login/?next=/experiments/pilot/progress/%3Fwave%3D1"


def test_a_view_without_a_method_restriction_accepts_get():
    assert accepts_get(lambda request: None)
