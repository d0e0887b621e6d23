"""Access by role: every address of the site has a row, and users of all roles try each address.

The rows say what GET gives, or POST where the row is marked. `owner` owns the experiment, which is private;
`researcher` is in the group and does not own it; `viewer` reads what is shared, and this is not.
"""

from dataclasses import dataclass

import pytest
from django.urls import URLPattern, URLResolver, get_resolver, reverse

from tests.factories import make_experiment
from tests.factories.tokens import make_bearer, make_token

PEOPLE = (None, "rater", "viewer", "researcher", "owner", "operator")
JSON = {"data": {}, "content_type": "application/json"}
TO_LOGIN = 302
NO_TOKEN = 401
HIDDEN = 404


@dataclass(frozen=True)
class Row:
    """Expected statuses for nobody, rater, viewer, researcher, owner and operator, in this order."""

    expected: tuple[int, ...]
    args: str = ""
    method: str = "get"
    json: dict | None = None


def expect_for_experiment(owner=200, *, method="get", args="slug"):
    """Expect that only its owner and an operator reach a private experiment."""
    return Row((TO_LOGIN, HIDDEN, HIDDEN, HIDDEN, owner, owner), args, method)


EVERYONE = Row((200,) * 6)
READERS = Row((TO_LOGIN, HIDDEN, 200, 200, 200, 200))
MEMBERS = Row((TO_LOGIN, HIDDEN, HIDDEN, 200, 200, 200))
SIGNED_IN = Row((TO_LOGIN, 200, 200, 200, 200, 200))


def expect_for_group(args, answer=200, method="get"):
    """Expect that the group reaches datasets, and a viewer does not, because no experiment with them is shared."""
    return Row((TO_LOGIN, HIDDEN, HIDDEN, answer, answer, answer), args, method)


def expect_for_rater(answer, *, method="get", args="queue"):
    """Expect that only raters of the queue may open it, and its owner may not."""
    return Row((TO_LOGIN, answer, HIDDEN, HIDDEN, HIDDEN, HIDDEN), args, method)


def expect_for_operators(args="", answer=200):
    return Row((TO_LOGIN, HIDDEN, HIDDEN, HIDDEN, HIDDEN, answer), args)


def expect_for_api(answer=200, *, args="", method="get", json=None):
    """Expect that only its owner and an operator reach a private experiment in the API, which never redirects."""
    return Row((NO_TOKEN, HIDDEN, HIDDEN, HIDDEN, answer, answer), args, method, json)


API_READERS = Row((NO_TOKEN, HIDDEN, 200, 200, 200, 200))
NO_SESSION = Row((NO_TOKEN, HIDDEN, 403, 403, 403, 403), "slug")
NOBODY = Row((NO_TOKEN, HIDDEN, HIDDEN, HIDDEN, HIDDEN, HIDDEN))


def expect_for_api_group(args):
    return Row((NO_TOKEN, HIDDEN, HIDDEN, 200, 200, 200), args)


MATRIX = {
    "healthz": EVERYONE,
    "llms_txt": EVERYONE,
    "login": Row((200, 302, 302, 302, 302, 302)),
    "welcome": EVERYONE,
    "logout": Row((302,) * 6, method="post"),
    "help": SIGNED_IN,
    "help_page": Row(SIGNED_IN.expected, "glossary"),
    "help_image": Row(SIGNED_IN.expected, "experiment.png"),
    "password_change": SIGNED_IN,
    "password_change_done": SIGNED_IN,
    "styleguide": SIGNED_IN,
    "home": Row((TO_LOGIN, 302, 200, 200, 200, 200)),
    "start": MEMBERS,
    "start_preview": Row((TO_LOGIN, HIDDEN, HIDDEN, 200, 200, 200), method="post"),
    "start_try": Row((TO_LOGIN, HIDDEN, HIDDEN, HIDDEN, HIDDEN, HIDDEN), "one"),
    "experiment_list": READERS,
    "search": READERS,
    "notifications": READERS,
    "notifications_test": Row((TO_LOGIN, HIDDEN, 302, 302, 302, 302), method="post"),
    "experiment_new": MEMBERS,
    "experiment_summary": Row((TO_LOGIN, HIDDEN, HIDDEN, 200, 200, 200), method="post"),
    "experiment_choices": Row((TO_LOGIN, HIDDEN, HIDDEN, 200, 200, 200), "samplers", method="post"),
    "library": Row((TO_LOGIN, HIDDEN, HIDDEN, 302, 302, 302)),
    "library_list": expect_for_group("prompts"),
    "library_page": expect_for_group("prompts prompt"),
    # An operator without the role of an author writes no definitions.
    "library_new": Row((TO_LOGIN, HIDDEN, HIDDEN, 200, 200, HIDDEN), "prompts"),
    "library_edit": Row((TO_LOGIN, HIDDEN, HIDDEN, HIDDEN, HIDDEN, HIDDEN), "prompts prompt one"),
    "library_preview": Row((TO_LOGIN, HIDDEN, HIDDEN, 200, 200, 200), "prompts", method="post"),
    "library_try": Row((TO_LOGIN, HIDDEN, HIDDEN, 200, 200, 200), "prompts", method="post"),
    "library_act": Row((TO_LOGIN, HIDDEN, HIDDEN, HIDDEN, HIDDEN, HIDDEN), "prompts prompt one approve", "post"),
    "rubric_test": Row((TO_LOGIN, HIDDEN, HIDDEN, 200, 200, HIDDEN), "rubric one"),
    "judge_list": MEMBERS,
    "judge_new": Row((TO_LOGIN, HIDDEN, HIDDEN, 200, 200, HIDDEN)),
    "judge_page": expect_for_group("judge"),
    "judge_archive": Row((TO_LOGIN, HIDDEN, HIDDEN, 302, 302, HIDDEN), "judge", method="post"),
    "experiment_from_file": MEMBERS,
    "experiment_detail": expect_for_experiment(),
    "experiment_star": expect_for_experiment(302, method="post"),
    "experiment_edit": expect_for_experiment(),
    "experiment_extend": expect_for_experiment(),
    "experiment_yaml": expect_for_experiment(),
    "experiment_manifest": expect_for_experiment(args="slug manifest"),
    "experiment_preview": expect_for_experiment(),
    "experiment_message": expect_for_experiment(args="slug one"),
    "experiment_duplicate": expect_for_experiment(),
    "experiment_share": expect_for_experiment(),
    "experiment_archive": expect_for_experiment(302, method="post"),
    "experiment_store": expect_for_experiment(302, method="post"),
    "experiment_bring_back": expect_for_experiment(302, method="post"),
    "experiment_delete": expect_for_experiment(302, method="post"),
    "experiment_progress": expect_for_experiment(),
    "experiment_ledger": expect_for_experiment(),
    "ledger": expect_for_operators(),
    "experiment_launch": expect_for_experiment(),
    "experiment_preflight": expect_for_experiment(302, method="post"),
    "experiment_results": expect_for_experiment(),
    "experiment_files": expect_for_experiment(),
    "experiment_preregistration": expect_for_experiment(),
    "preregistration_text": expect_for_experiment(HIDDEN),
    "experiment_analysis": expect_for_experiment(),
    "experiment_grade": expect_for_experiment(200, method="post"),
    "blind_start": expect_for_experiment(302, method="post"),
    "blind_reveal": expect_for_experiment(302, method="post"),
    "compare": READERS,
    "leaderboard": READERS,
    # The leaderboard has no parametric experiment.
    "leaderboard_figure": Row((TO_LOGIN, HIDDEN, HIDDEN, HIDDEN, HIDDEN, HIDDEN), "svg"),
    "explorer": expect_for_experiment(),
    "experiment_points": expect_for_experiment(),
    "experiment_waves": expect_for_experiment(),
    "experiment_matrix": expect_for_experiment(),
    "matrix_cell": expect_for_experiment(args="slug asked condition"),
    "experiment_export": expect_for_experiment(args="slug trials csv"),
    "experiment_figures": expect_for_experiment(),
    "figures_summary": expect_for_experiment(),
    "figure_file": expect_for_experiment(args="slug ratings csv"),
    "experiment_report": expect_for_experiment(),
    "report_edit": expect_for_experiment(),
    "report_file": expect_for_experiment(HIDDEN, args="slug html"),
    "report_figure": expect_for_experiment(HIDDEN, args="slug norms"),
    "share_links": expect_for_experiment(),
    "share_link_revoke": expect_for_experiment(HIDDEN, method="post", args="slug one"),
    "shared": Row((HIDDEN,) * 6, "token"),
    "shared_report": Row((HIDDEN,) * 6, "token"),
    "shared_report_file": Row((HIDDEN,) * 6, "token html"),
    "shared_report_figure": Row((HIDDEN,) * 6, "token norms"),
    "shared_leaderboard": Row((HIDDEN,) * 6, "token"),
    "shared_design": Row((HIDDEN,) * 6, "token"),
    "shared_figures": Row((HIDDEN,) * 6, "token"),
    "shared_figure": Row((HIDDEN,) * 6, "token norms"),
    "snapshot_make": expect_for_experiment(200, method="post"),
    "snapshot_file": expect_for_experiment(args="slug snapshot"),
    "experiment_grading": expect_for_experiment(),
    "grading_length": expect_for_experiment(),
    "experiment_judge": expect_for_experiment(),
    "experiment_draw_judges": expect_for_experiment(),
    "experiment_add_panel": expect_for_experiment(302, method="post"),
    "experiment_write": expect_for_experiment(),
    "text_sets": MEMBERS,
    "text_set": Row((TO_LOGIN, HIDDEN, HIDDEN, 200, 200, 200), "texts one"),
    "text_of_item": Row((TO_LOGIN, HIDDEN, HIDDEN, 200, 200, HIDDEN), "texts one item"),
    "text_set_act": Row((TO_LOGIN, HIDDEN, HIDDEN, 302, 302, HIDDEN), "texts one collect", "post"),
    "experiment_agreement": expect_for_experiment(),
    "experiment_disagreements": expect_for_experiment(),
    "disagreement": expect_for_experiment(args="slug trial"),
    "pair_disagreement": expect_for_experiment(args="slug pair"),
    "disagreement_adjudicate": expect_for_experiment(302, method="post", args="slug trial"),
    "experiment_action": expect_for_experiment(302, method="post", args="slug pause"),
    "dataset_list": READERS,
    "dataset_new": MEMBERS,
    "dataset_hub": MEMBERS,
    "parametric_new": MEMBERS,
    "study_import_new": MEMBERS,
    "dataset_bundle": expect_for_group("dataset version"),
    "experiment_bundle": expect_for_experiment(args="slug design"),
    "study_import": Row((TO_LOGIN, HIDDEN, HIDDEN, HIDDEN, HIDDEN, HIDDEN), "somebody-elses-upload"),
    "dataset_left_out": Row((TO_LOGIN, HIDDEN, HIDDEN, HIDDEN, HIDDEN, HIDDEN), "somebody-elses-upload"),
    "upload_thumbnail": Row((TO_LOGIN, HIDDEN, HIDDEN, HIDDEN, HIDDEN, HIDDEN), "somebody-elses-upload image"),
    "dataset_import": Row((TO_LOGIN, HIDDEN, HIDDEN, HIDDEN, HIDDEN, HIDDEN), "somebody-elses-upload"),
    "dataset_detail": expect_for_group("dataset version"),
    "dataset_table": expect_for_group("dataset version"),
    "dataset_about": expect_for_group("dataset version"),
    "dataset_star": expect_for_group("dataset version", 302, "post"),
    "dataset_edit": expect_for_group("draft one"),
    "dataset_norms": expect_for_group("draft one"),
    "dataset_sample": expect_for_group("dataset version"),
    "dataset_act": expect_for_group("dataset version duplicate", 302, "post"),
    "item_detail": expect_for_group("draft one item"),
    "item_text": expect_for_group("draft one item metadata", HIDDEN),
    "item_act": expect_for_group("draft one item exclude", 302, "post"),
    "asset": expect_for_group("image"),
    "thumbnail": expect_for_group("image"),
    "run_detail": expect_for_experiment(args="run"),
    "run_action": expect_for_experiment(302, method="post", args="run pause"),
    "batch_list": READERS,
    "batch_detail": expect_for_experiment(args="batch"),
    "batch_cancel": expect_for_experiment(302, method="post", args="batch"),
    "trial_list": READERS,
    "trial_detail": expect_for_experiment(args="trial"),
    "trial_text": expect_for_experiment(args="trial answer"),
    "trial_message": expect_for_experiment(args="trial one"),
    "trial_annotate": expect_for_experiment(200, method="post", args="trial"),
    "item_annotate": expect_for_group("asked", 200, "post"),
    "annotation_edit": expect_for_experiment(args="annotation"),
    "annotation_remove": Row((TO_LOGIN, HIDDEN, HIDDEN, HIDDEN, 302, HIDDEN), "annotation", "post"),
    "experiment_annotations": expect_for_experiment(),
    "annotated_dataset": expect_for_experiment(),
    "item_page": expect_for_group("asked"),
    "item_transcript": expect_for_experiment(args="slug asked"),
    "endpoint_list": MEMBERS,
    "endpoint_new": expect_for_operators(),
    "endpoint_live": Row((TO_LOGIN, HIDDEN, HIDDEN, 200, 200, 200), "endpoint"),
    "endpoint_edit": expect_for_operators("endpoint"),
    "endpoint_models": expect_for_operators("endpoint"),
    "endpoint_prices": Row((TO_LOGIN, HIDDEN, HIDDEN, HIDDEN, HIDDEN, 302), "endpoint", "post"),
    "worker_list": MEMBERS,
    "cache_purge": Row((TO_LOGIN, HIDDEN, HIDDEN, HIDDEN, HIDDEN, 302), method="post"),
    "model_new": expect_for_operators(),
    "model_edit": expect_for_operators("model"),
    "model_schema": Row((TO_LOGIN, HIDDEN, HIDDEN, HIDDEN, HIDDEN, 302), "model", "post"),
    "model_check": Row((TO_LOGIN, HIDDEN, HIDDEN, 302, 302, 302), "model", "post"),
    "model_status": Row((TO_LOGIN, HIDDEN, HIDDEN, 200, 200, 200), "model"),
    "rating_queue": Row((TO_LOGIN, 302, 200, 200, 200, 200)),
    "rating_queue_list": MEMBERS,
    "rating_queue_new": MEMBERS,
    "rating_queue_of_answers": expect_for_experiment(),
    "rating_queue_detail": Row((TO_LOGIN, HIDDEN, HIDDEN, 200, 200, 200), "queue"),
    "rating_queue_export": Row((TO_LOGIN, HIDDEN, HIDDEN, 200, 200, 200), "queue"),
    "rating_queue_edit": Row((TO_LOGIN, HIDDEN, HIDDEN, HIDDEN, HIDDEN, HIDDEN), "queue"),
    "rating_queue_act": expect_for_experiment(302, method="post", args="queue close"),
    "rating_queue_invite": expect_for_experiment(302, method="post", args="queue"),
    "rating_queue_assign": expect_for_experiment(302, method="post", args="queue"),
    "rater_act": expect_for_experiment(302, method="post", args="queue one release"),
    "rating_join": Row((HIDDEN,) * 6, "not-a-token"),
    "rating_item": expect_for_rater(200),
    "rating_start": expect_for_rater(302, method="post"),
    "rating_rate": expect_for_rater(302, method="post"),
    "rating_undo": expect_for_rater(302, method="post"),
    "rating_image": expect_for_rater(200, args="queue one"),
    "rating_text": expect_for_rater(HIDDEN, args="queue one question"),
}
MATRIX |= {
    "token_list": READERS,
    "token_revoke": Row((TO_LOGIN, HIDDEN, HIDDEN, HIDDEN, 302, 302), "apitoken", "post"),
    "api_docs": READERS,
    "metrics": Row((NO_TOKEN, HIDDEN, HIDDEN, HIDDEN, HIDDEN, 200)),
    # Only a token of one experiment may use the gateway, never a session.
    "gateway_models": NO_SESSION,
    "gateway_chat": Row(NO_SESSION.expected, "slug", "post", {}),
    "gateway_messages": Row(NO_SESSION.expected, "slug", "post", {}),
    "api:openapi-json": API_READERS,
    "api:api-root": NOBODY,
    "api:datasets": API_READERS,
    "api:dataset": expect_for_api_group("dataset version"),
    "api:items": expect_for_api_group("dataset version"),
    "api:prompts": API_READERS,
    "api:prompt": expect_for_api_group("prompt one"),
    "api:models": API_READERS,
    "api:experiments": API_READERS,
    "api:experiment": expect_for_api(args="slug"),
    "api:design": expect_for_api(args="slug"),
    "api:status": expect_for_api(args="slug"),
    "api:estimate": expect_for_api(args="slug", method="post", json={}),
    "api:launch": expect_for_api(args="slug", method="post", json={}),
    "api:pause": expect_for_api(args="slug", method="post", json={}),
    "api:resume": expect_for_api(args="slug", method="post", json={}),
    "api:cancel": expect_for_api(args="slug", method="post", json={"reason": "test"}),
    # Its run has calls in flight, so it cannot be archived now.
    "api:archive": expect_for_api(409, args="slug", method="post", json={"reason": "test"}),
    "api:experiment_runs": expect_for_api(args="slug"),
    "api:run": expect_for_api(args="run"),
    "api:trials": expect_for_api(args="slug"),
    "api:trial": expect_for_api(args="trial"),
    "api:gradings": expect_for_api(args="slug"),
    "api:results": expect_for_api(args="slug"),
    "api:export": expect_for_api(args="slug trials csv"),
    "api:figures": expect_for_api(args="slug"),
    "api:figure": expect_for_api(HIDDEN, args="slug means csv"),
}
# Django's own pages have their own permissions; tests of the apps cover their admin pages.
NOT_OURS = {"admin"}


def iterate_names(patterns, namespace=""):
    for pattern in patterns:
        if isinstance(pattern, URLResolver):
            if pattern.namespace not in NOT_OURS:
                yield from iterate_names(pattern.url_patterns, pattern.namespace or namespace)
        elif isinstance(pattern, URLPattern):
            yield f"{namespace}:{pattern.name}" if namespace else pattern.name


def list_served_names():
    return sorted(set(iterate_names(get_resolver().url_patterns)))


def test_every_address_has_a_row():
    assert set(list_served_names()) - set(MATRIX) == set(), "a new address needs a row: who may open it?"


def test_every_address_has_a_name():
    assert None not in list_served_names()


@pytest.mark.slow
@pytest.mark.parametrize("name", list_served_names())
def test_each_person_gets_the_status_in_the_row(name, url_values, as_):
    row = MATRIX[name]
    address = reverse(name, args=[url_values.get(word, word) for word in row.args.split()])
    more = {} if row.json is None else {"data": row.json, "content_type": "application/json"}
    answers = tuple(getattr(as_(person), row.method)(address, **more).status_code for person in PEOPLE)
    assert answers == row.expected, dict(zip(PEOPLE, answers, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in MATRIX if name.startswith("api:") or name == "metrics"])
def test_a_token_gets_what_the_session_of_its_account_gets(name, lab, url_values):
    row = MATRIX[name]
    address = reverse(name, args=[url_values.get(word, word) for word in row.args.split()])
    more = {} if row.json is None else {"data": row.json, "content_type": "application/json"}

    def ask(text):
        return getattr(make_bearer(text), row.method)(address, **more).status_code

    texts = {person: make_token(lab.people[person], "admin")[1] for person in PEOPLE if person}
    assert tuple(ask(text) for text in texts.values()) == row.expected[1:]
    revoked, text = make_token(lab.people["operator"], "admin")
    revoked.revoke(by=lab.people["operator"])
    assert ask(text) == NO_TOKEN
    lab.people["owner"].is_active = False
    lab.people["owner"].save()
    assert ask(texts["owner"]) == NO_TOKEN, "the account is deactivated"


GATEWAY = {"gateway_models": ("get", 200), "gateway_chat": ("post", 400), "gateway_messages": ("post", 400)}


@pytest.mark.parametrize("name", GATEWAY)
def test_a_token_of_the_experiment_opens_the_gateway_to_those_who_may_edit_it(name, lab):
    """An empty request of a program with access is refused with 400."""
    (method, answer), address = GATEWAY[name], reverse(name, args=[lab.experiment.slug])

    def ask(person, scope="run", experiment=lab.experiment):
        text = make_token(lab.people[person], scope, experiment=experiment)[1]
        return getattr(make_bearer(text), method)(address, **({} if method == "get" else JSON)).status_code

    statuses = {person: ask(person) for person in PEOPLE if person}
    assert statuses == {
        "rater": HIDDEN, "viewer": HIDDEN, "researcher": HIDDEN, "owner": answer, "operator": answer
    }  # fmt: skip
    assert ask("owner", "read") == 403, "it may not make calls"
    assert ask("owner", "admin", None) == 403, "it is for all experiments"
    other = make_experiment("other", owner=lab.people["owner"], dataset=lab.experiment.dataset, models=[], prompts=[])
    assert ask("owner", "run", other) == HIDDEN


def test_addresses_that_change_data_refuse_get(url_values, as_):
    client, answers = as_("operator"), {}
    for name, row in MATRIX.items():
        if row.method == "post":
            address = reverse(name, args=[url_values.get(word, word) for word in row.args.split()])
            answers[name] = client.get(address).status_code
    assert len(answers) > 40
    assert {name: status for name, status in answers.items() if status != 405} == {}
