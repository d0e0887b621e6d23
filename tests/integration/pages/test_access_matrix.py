"""Who may open what: every address of the site has a row, and each person is tried on each.

The rows say what GET gives, or POST where the row is marked. `owner` owns the experiment, which is private;
`researcher` is in the group and does not own it; `viewer` reads what is shared, and this is not.
"""

from dataclasses import dataclass

import pytest
from django.urls import URLPattern, URLResolver, get_resolver, reverse

from runs_app.annotations import annotate
from runs_app.models import TextSet
from tests.factories.gradings import make_scale_rubric

PEOPLE = (None, "rater", "viewer", "researcher", "owner", "operator")
TO_LOGIN = 302
GONE = 404


@dataclass(frozen=True)
class Row:
    """Expected answers for nobody, rater, viewer, researcher, owner and operator, in that order."""

    expected: tuple[int, ...]
    args: str = ""
    method: str = "get"


def of_experiment(owner=200, *, method="get", args="slug"):
    """Only its owner and an operator reach a private experiment."""
    return Row((TO_LOGIN, GONE, GONE, GONE, owner, owner), args, method)


EVERYONE = Row((200,) * 6)
READERS = Row((TO_LOGIN, GONE, 200, 200, 200, 200))
MEMBERS = Row((TO_LOGIN, GONE, GONE, 200, 200, 200))
SIGNED_IN = Row((TO_LOGIN, 200, 200, 200, 200, 200))


def of_group(args, answer=200, method="get"):
    """Datasets belong to the group; a viewer sees those of shared experiments, and these are not."""
    return Row((TO_LOGIN, GONE, GONE, answer, answer, answer), args, method)


def of_rater(answer, *, method="get", args="queue"):
    """Only the queue's raters may open it, not even its owner."""
    return Row((TO_LOGIN, answer, GONE, GONE, GONE, GONE), args, method)


def operators(args="", answer=200):
    return Row((TO_LOGIN, GONE, GONE, GONE, GONE, answer), args)


MATRIX = {
    "healthz": EVERYONE,
    "login": Row((200, 302, 302, 302, 302, 302)),
    "logout": Row((302,) * 6, method="post"),
    "password_change": SIGNED_IN,
    "password_change_done": SIGNED_IN,
    "styleguide": SIGNED_IN,
    "home": Row((TO_LOGIN, 302, 200, 200, 200, 200)),
    "experiment_list": READERS,
    "experiment_new": MEMBERS,
    "experiment_outlook": Row((TO_LOGIN, GONE, GONE, 200, 200, 200), method="post"),
    "experiment_from_file": MEMBERS,
    "experiment_detail": of_experiment(),
    "experiment_edit": of_experiment(),
    "experiment_extend": of_experiment(),
    "experiment_yaml": of_experiment(),
    "experiment_manifest": of_experiment(args="slug manifest"),
    "experiment_preview": of_experiment(),
    "experiment_message": of_experiment(args="slug one"),
    "experiment_duplicate": of_experiment(),
    "experiment_share": of_experiment(),
    "experiment_archive": of_experiment(302, method="post"),
    "experiment_delete": of_experiment(302, method="post"),
    "experiment_progress": of_experiment(),
    "experiment_ledger": of_experiment(),
    "ledger": operators(),
    "experiment_launch": of_experiment(),
    "experiment_preflight": of_experiment(302, method="post"),
    "experiment_results": of_experiment(),
    "experiment_analysis": of_experiment(),
    "analysis_figure": of_experiment(GONE, args="slug means"),
    "experiment_grade": of_experiment(200, method="post"),
    "blind_start": of_experiment(302, method="post"),
    "blind_reveal": of_experiment(302, method="post"),
    "compare": READERS,
    "cost_figure": of_experiment(GONE),
    "leaderboard": READERS,
    "leaderboard_figure": Row((TO_LOGIN, GONE, GONE, GONE, GONE, GONE), "svg"),  # Without a parametric experiment.
    "explorer": of_experiment(),
    "explorer_figure": of_experiment(GONE, args="slug surface"),
    "experiment_points": of_experiment(),
    "experiment_waves": of_experiment(),
    "experiment_matrix": of_experiment(),
    "matrix_cell": of_experiment(args="slug asked condition"),
    "experiment_figure": of_experiment(args="slug ratings"),
    "experiment_export": of_experiment(args="slug trials csv"),
    "experiment_figures": of_experiment(),
    "figures_summary": of_experiment(),
    "figure_file": of_experiment(args="slug ratings csv"),
    "experiment_report": of_experiment(),
    "report_edit": of_experiment(),
    "report_file": of_experiment(GONE, args="slug html"),
    "report_figure": of_experiment(GONE, args="slug norms"),
    "share_links": of_experiment(),
    "share_link_revoke": of_experiment(GONE, method="post", args="slug one"),
    "shared": Row((GONE,) * 6, "token"),
    "shared_report": Row((GONE,) * 6, "token"),
    "shared_report_file": Row((GONE,) * 6, "token html"),
    "shared_report_figure": Row((GONE,) * 6, "token norms"),
    "shared_leaderboard": Row((GONE,) * 6, "token"),
    "shared_design": Row((GONE,) * 6, "token"),
    "shared_figures": Row((GONE,) * 6, "token"),
    "shared_figure": Row((GONE,) * 6, "token norms"),
    "snapshot_make": of_experiment(302, method="post"),
    "snapshot_file": of_experiment(args="slug snapshot"),
    "experiment_grading": of_experiment(),
    "grading_length": of_experiment(),
    "grading_length_figure": of_experiment(GONE),
    "experiment_judge": of_experiment(),
    "experiment_draw_judges": of_experiment(),
    "experiment_convene": of_experiment(302, method="post"),
    "experiment_write": of_experiment(),
    "text_sets": MEMBERS,
    "text_set": Row((TO_LOGIN, GONE, GONE, 200, 200, 200), "texts one"),
    "text_of_item": Row((TO_LOGIN, GONE, GONE, 200, 200, GONE), "texts one item"),
    "text_set_act": Row((TO_LOGIN, GONE, GONE, 302, 302, GONE), "texts one collect", "post"),
    "experiment_agreement": of_experiment(),
    "agreement_figure": of_experiment(GONE, args="slug confusion"),
    "experiment_disagreements": of_experiment(),
    "disagreement": of_experiment(args="slug trial"),
    "pair_disagreement": of_experiment(args="slug pair"),
    "disagreement_settle": of_experiment(302, method="post", args="slug trial"),
    "experiment_steer": of_experiment(302, method="post", args="slug pause"),
    "dataset_list": READERS,
    "dataset_new": MEMBERS,
    "dataset_hub": MEMBERS,
    "parametric_new": MEMBERS,
    "study_import_new": MEMBERS,
    "dataset_bundle": of_group("dataset version"),
    "experiment_bundle": of_experiment(args="slug design"),
    "study_import": Row((TO_LOGIN, GONE, GONE, GONE, GONE, GONE), "somebody-elses-upload"),
    "dataset_import": Row((TO_LOGIN, GONE, GONE, GONE, GONE, GONE), "somebody-elses-upload"),
    "dataset_detail": of_group("dataset version"),
    "dataset_table": of_group("dataset version"),
    "dataset_about": of_group("dataset version"),
    "dataset_edit": of_group("draft one"),
    "dataset_norms": of_group("draft one"),
    "dataset_sample": of_group("dataset version"),
    "dataset_act": of_group("dataset version duplicate", 302, "post"),
    "item_detail": of_group("draft one item"),
    "item_text": of_group("draft one item metadata", GONE),
    "item_act": of_group("draft one item exclude", 302, "post"),
    "asset": of_group("image"),
    "thumbnail": of_group("image"),
    "run_detail": of_experiment(args="run"),
    "run_steer": of_experiment(302, method="post", args="run pause"),
    "batch_list": READERS,
    "batch_detail": of_experiment(args="batch"),
    "batch_cancel": of_experiment(302, method="post", args="batch"),
    "trial_list": READERS,
    "trial_detail": of_experiment(args="trial"),
    "trial_text": of_experiment(args="trial answer"),
    "trial_message": of_experiment(args="trial one"),
    "trial_annotate": of_experiment(200, method="post", args="trial"),
    "item_annotate": of_group("asked", 200, "post"),
    "annotation_edit": of_experiment(args="annotation"),
    "annotation_remove": Row((TO_LOGIN, GONE, GONE, GONE, 302, GONE), "annotation", "post"),
    "experiment_annotations": of_experiment(),
    "annotated_dataset": of_experiment(),
    "item_page": of_group("asked"),
    "endpoint_list": MEMBERS,
    "endpoint_new": operators(),
    "endpoint_live": Row((TO_LOGIN, GONE, GONE, 200, 200, 200), "endpoint"),
    "endpoint_edit": operators("endpoint"),
    "endpoint_prices": Row((TO_LOGIN, GONE, GONE, GONE, GONE, 302), "endpoint", "post"),
    "worker_list": MEMBERS,
    "cache_purge": Row((TO_LOGIN, GONE, GONE, GONE, GONE, 302), method="post"),
    "model_new": operators(),
    "model_edit": operators("model"),
    "model_check": Row((TO_LOGIN, GONE, GONE, 302, 302, 302), "model", "post"),
    "model_status": Row((TO_LOGIN, GONE, GONE, 200, 200, 200), "model"),
    "rating_queue": Row((TO_LOGIN, 302, 200, 200, 200, 200)),
    "rating_queue_list": MEMBERS,
    "rating_queue_new": MEMBERS,
    "rating_queue_of_answers": of_experiment(),
    "rating_queue_detail": Row((TO_LOGIN, GONE, GONE, 200, 200, 200), "queue"),
    "rating_queue_export": Row((TO_LOGIN, GONE, GONE, 200, 200, 200), "queue"),
    "rating_queue_edit": Row((TO_LOGIN, GONE, GONE, GONE, GONE, GONE), "queue"),
    "rating_queue_act": of_experiment(302, method="post", args="queue close"),
    "rating_queue_invite": of_experiment(302, method="post", args="queue"),
    "rating_queue_assign": of_experiment(302, method="post", args="queue"),
    "rater_act": of_experiment(302, method="post", args="queue one release"),
    "rating_join": Row((GONE,) * 6, "not-a-token"),
    "rating_item": of_rater(200),
    "rating_start": of_rater(302, method="post"),
    "rating_rate": of_rater(302, method="post"),
    "rating_undo": of_rater(302, method="post"),
    "rating_image": of_rater(200, args="queue one"),
    "rating_text": of_rater(GONE, args="queue one question"),
}
# Django's own pages, whose permissions are its own; the admins of the apps are tested with the apps.
NOT_OURS = {"admin"}


def names_of(patterns, namespace=""):
    for pattern in patterns:
        if isinstance(pattern, URLResolver):
            if pattern.namespace not in NOT_OURS:
                yield from names_of(pattern.url_patterns, pattern.namespace or namespace)
        elif isinstance(pattern, URLPattern):
            yield f"{namespace}:{pattern.name}" if namespace else pattern.name


def served():
    return sorted(set(names_of(get_resolver().url_patterns)))


def values_of(lab):
    return {
        "slug": lab.experiment.slug,
        "manifest": lab.experiment.manifests.create(content={}).pk,
        "snapshot": a_snapshot(lab.experiment),
        "run": lab.run.pk,
        "trial": lab.trial.pk,
        "asked": lab.trial.item_id,
        "annotation": annotate(lab.trial, "note", "Odd.", by=lab.people["owner"])[0].pk,
        "condition": lab.run.condition_id,
        "pair": a_pair(lab),
        "batch": lab.run.batches.create(endpoint_id=lab.model.endpoint_id).pk,
        "endpoint": lab.model.endpoint_id,
        "model": lab.model.pk,
        "dataset": lab.experiment.dataset.slug,
        "version": lab.experiment.dataset.version,
        "draft": lab.draft.slug,
        "one": lab.draft.version,
        "item": lab.draft.items.first().pk,
        "image": lab.draft.items.first().image_id,
        "queue": lab.queue.name,
        "texts": TextSet.objects.get_or_create(name="own", dataset=lab.draft)[0].name,
    }


def a_pair(lab):
    """A person's verdict on two answers, without a call."""
    rubric = make_scale_rubric("better", kind="pairwise")
    judge, _ = lab.experiment.grade_conditions.get_or_create(grade_condition_id="judge", kind="judge", rubric=rubric)
    first, second = lab.run.trials.order_by("pk")[:2]
    return judge.preferences.get_or_create(trial_a=first, trial_b=second, winner="a")[0].pk


def a_snapshot(experiment):
    """Return the digest of a snapshot with an empty file."""
    made = experiment.snapshots.create(digest="ab" * 32, counts={"rows": {"trials": 0, "gradings": 0}}, size=1)
    made.path.parent.mkdir(parents=True, exist_ok=True)
    made.path.write_bytes(b".")
    return made.digest


def test_every_address_has_a_row():
    assert set(served()) - set(MATRIX) == set(), "a new address needs a row: who may open it?"


def test_every_address_has_a_name():
    assert None not in served()


@pytest.mark.slow
@pytest.mark.parametrize("name", served())
def test_each_person_gets_the_status_in_the_row(name, lab, as_):
    row, known = MATRIX[name], values_of(lab)
    address = reverse(name, args=[known.get(word, word) for word in row.args.split()])
    answers = tuple(getattr(as_(person), row.method)(address).status_code for person in PEOPLE)
    assert answers == row.expected, dict(zip(PEOPLE, answers, strict=True))


@pytest.mark.parametrize("name", [name for name, row in MATRIX.items() if row.method == "post"])
def test_addresses_that_change_data_refuse_get(name, lab, as_):
    row, known = MATRIX[name], values_of(lab)
    address = reverse(name, args=[known.get(word, word) for word in row.args.split()])
    assert as_("operator").get(address).status_code == 405
