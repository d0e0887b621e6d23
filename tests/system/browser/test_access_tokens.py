"""Access tokens and the page of the API in a browser."""

from datetime import timedelta

from django.urls import reverse
from django.utils import timezone
from playwright.sync_api import expect

from runs_app.models import ApiToken
from tests import factories


def test_the_pages_of_tokens_and_of_the_api_look_right(owner, operator, visitor, checked_in_all_views):
    for person in (owner, operator):
        ApiToken.create(person, "nightly report of the group", "read", timezone.now() + timedelta(days=90))
    page = visitor(operator)
    for name in ("token_list", "api_docs"):
        assert page.goto(reverse(name)).ok
        page.wait_for_load_state("networkidle")
        checked_in_all_views(page, name)


def test_a_person_makes_a_token_copies_it_and_revokes_it(owner, visitor):
    factories.make_experiment("pilot", owner=owner)
    page = visitor(owner)
    page.goto(reverse("home"))
    page.wait_for_load_state("load")
    page.locator("summary", has_text=owner.get_username()).click()
    page.get_by_role("link", name="Access tokens").click()
    page.get_by_label("Name").fill("laptop")
    page.get_by_label("Permissions").select_option("run")
    page.get_by_label("Reach").select_option("pilot")
    page.get_by_role("button", name="Create token").click()
    text = page.get_by_label("Text of the new token").input_value()
    token = ApiToken.objects.find(text)
    assert (token.label, token.scope, token.experiment.slug) == ("laptop", "run", "pilot")
    page.get_by_role("button", name=f"Revoke {token}").click()
    expect(page.get_by_text(f"{token} is revoked.")).to_be_visible()
    assert ApiToken.objects.find(text) is None
