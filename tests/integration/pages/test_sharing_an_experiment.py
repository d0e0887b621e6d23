"""The owner shares an experiment on its form, its page or by command; the history records each change."""

from io import StringIO

import pytest
from django.core.management import CommandError, call_command
from django.urls import reverse

from tests import factories

pytestmark = pytest.mark.django_db


def build_address(lab, name="experiment_share"):
    return reverse(name, args=[lab.experiment.slug])


def submit_sharing(client, lab, **form):
    return client.post(build_address(lab), {"sharing": "private", **form})


@pytest.mark.slow
def test_a_chosen_viewer_can_only_read_the_experiment_and_its_dataset(lab, as_, people):
    data = lab.experiment.dataset
    page = reverse("dataset_detail", args=[data.slug, data.version])
    assert as_("viewer").get(build_address(lab, "experiment_detail")).status_code == 404
    assert as_("viewer").get(page).status_code == 404
    response = submit_sharing(
        as_("owner"), lab, sharing="people", shared_with=[people["viewer"].pk], reason="For review"
    )
    assert response.status_code == 302
    viewer = as_("viewer")
    assert [viewer.get(one).status_code for one in (build_address(lab, "experiment_detail"), page)] == [200, 200]
    assert viewer.get(build_address(lab)).status_code == 404
    assert viewer.get(reverse("dataset_sample", args=[data.slug, data.version])).status_code == 404
    assert as_("researcher").get(build_address(lab, "experiment_detail")).status_code == 404


def test_sharing_is_recorded_with_author_time_reason_and_people(lab, as_, people):
    submit_sharing(as_("owner"), lab, sharing="people", shared_with=[people["viewer"].pk], reason="For review")
    change = lab.experiment.history.filter(aspect="sharing").get()
    assert (change.by, change.reason) == (people["owner"], "For review")
    assert (change.from_value, change.to_value) == ("Owner only", "viewer")
    assert (
        "<dt>Shared with</dt><dd>viewer" in as_("owner").get(build_address(lab, "experiment_detail")).content.decode()
    )


def test_sharing_ends(lab, as_, people):
    submit_sharing(as_("owner"), lab, sharing="people", shared_with=[people["viewer"].pk])
    submit_sharing(as_("owner"), lab, sharing="private")
    assert as_("viewer").get(build_address(lab, "experiment_detail")).status_code == 404
    submit_sharing(as_("owner"), lab, sharing="group")
    assert as_("viewer").get(build_address(lab, "experiment_detail")).status_code == 200


def test_unchanged_sharing_adds_no_history(lab, as_):
    submit_sharing(as_("owner"), lab, sharing="private")
    assert not lab.experiment.history.filter(aspect="sharing").exists()


@pytest.mark.parametrize(
    ("sharing", "chosen", "message"),
    [("people", [], "at least one"), ("group", ["viewer"], "clear the selection of people")],
)
def test_selected_people_must_match_the_sharing_mode(lab, as_, people, sharing, chosen, message):
    keys = [people[name].pk for name in chosen]
    response = submit_sharing(as_("owner"), lab, sharing=sharing, shared_with=keys, reason="Typed")
    assert message in " ".join(response.context["form"].errors["shared_with"])
    assert "Typed" in response.content.decode()


def test_raters_users_without_a_role_and_the_owner_are_not_offered(lab, as_, people):
    form = as_("owner").get(build_address(lab)).context["form"]
    names = {user.username for user in form.fields["shared_with"].queryset}
    assert names == {"viewer", "researcher", "operator"}
    response = submit_sharing(as_("owner"), lab, sharing="people", shared_with=[people["rater"].pk])
    assert response.context["form"].errors["shared_with"]


def test_only_the_owner_and_an_operator_share(lab, as_, people):
    people["researcher"].shared_experiments.add(lab.experiment)
    assert submit_sharing(as_("researcher"), lab, sharing="group").status_code == 404
    assert submit_sharing(as_("operator"), lab, sharing="group").status_code == 302


def test_changing_other_settings_keeps_the_sharing(lab, as_, people):
    submit_sharing(as_("owner"), lab, sharing="people", shared_with=[people["viewer"].pk])
    as_("owner").post(build_address(lab, "experiment_edit"), {"samples": 4, "on_empty": "keep", "max_usd": "9"})
    lab.experiment.refresh_from_db()
    assert (lab.experiment.samples, lab.experiment.audience_text) == (4, "viewer")


@pytest.mark.slow
def test_the_command_shares_and_says_with_whom(lab):
    factories.make_user("guest", "Viewer")

    def run_command(*options):
        out = StringIO()
        call_command("experiment", "share", "pilot", *options, stdout=out)
        return out.getvalue().strip()

    assert (
        run_command("--with", "viewer", "--with", "guest", "--reason", "Review")
        == "pilot is shared with: guest, viewer"
    )
    assert run_command("--with", "viewer", "guest") == "pilot is shared with (unchanged): guest, viewer"
    assert run_command("--group") == "pilot is shared with: Everyone in the group and viewers"
    assert run_command("--private") == "pilot is shared with: Owner only"
    assert [change.reason for change in lab.experiment.history.filter(aspect="sharing")][-1] == "Review"
    for response in (["--with", "rater"], ["--with", "nobody"]):
        with pytest.raises(CommandError) as error:
            run_command(*response)
        assert error.value.returncode == 2
