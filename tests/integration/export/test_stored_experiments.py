"""The rows of an archived experiment move to a file and come back the same; counters and costs stay true meanwhile."""

import io
import re
from functools import cache

import pytest
from django.core.management import CommandError, call_command
from django.db import IntegrityError, connection, transaction
from django.db.models import ManyToOneRel, Model, Sum
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from datasets_app.models import BackgroundJob
from evalsite.lib.history import TransitionError
from grading_app.grading.consistency_check import compare_counters
from grading_app.grading.rating import queues, session
from grading_app.grading.scoring import grade
from grading_app.models import (
    Adjudication,
    GradeCondition,
    Grading,
    Preference,
    RatedAnswer,
    RaterAssignment,
    Rating,
    StoredRows,
)
from grading_app.models.gradings import allow_superseding
from grading_app.models.rating import QueueError
from grading_app.publish.export import snapshots
from grading_app.publish.export.snapshot_check import verify
from grading_app.publish.report.build import freeze_report
from grading_app.results.headlines import load_headlines
from grading_app.study_import import stored_rows
from grading_app.study_import.stored_rows import MOVED, WHOLE, bring_back, store_rows
from grading_app.tasks import move_experiment_rows
from runs_app import deletion
from runs_app.models import (
    Attempt,
    CachedAnswer,
    Experiment,
    ExternalCall,
    ItemText,
    LedgerEntry,
    Run,
    TextSet,
    Trial,
    Worker,
)
from runs_app.models.annotations import annotate
from tests import factories
from tests.factories.imports import import_snapshot
from tests.factories.judges import make_grader, write_ledger
from tests.factories.queues import make_answer_queue, make_rater, make_strict_rubric, rate_all, sign_in
from tests.shared_rows import shared_rows

pytestmark = [pytest.mark.django_db, pytest.mark.usefixtures("plain_pictures")]
TABLES: list[type[Model]] = [*(part.model for part in MOVED), *WHOLE, ItemText]


def list_differences():
    return [str(difference) for difference in compare_counters()]


def read_rows():
    """Return every row of the tables whose rows move, as the database writes it."""
    rows = {}
    with connection.cursor() as cursor:
        for model in TABLES:
            table = model._meta.db_table
            cursor.execute(f"SELECT row_to_json(t)::text FROM {table} t ORDER BY t.{model._meta.pk.column}")
            rows[table] = [row for (row,) in cursor.fetchall()]
    return rows


def read_ledger():
    sums = LedgerEntry.objects.order_by("run", "at").values("run", "at")
    return list(sums.annotate(paid=Sum("paid_usd"), calls=Sum("attempts"), tokens=Sum("input_tokens")))


def read_page(client, address):
    """Return the content of a page or of a file, without its tokens, and the states of its pictures."""
    answer = client.get(address)
    assert answer.status_code == 200, address
    content = b"".join(answer) if answer.streaming else answer.content
    return re.sub(rb"\b[A-Za-z0-9]{64}\b|state=[0-9a-f]+", b"", content)


def perform_job(kind):
    """Perform the newest job as a worker does, and return it."""
    job = BackgroundJob.objects.first()
    assert (job.kind, job.state) == (kind, "queued")
    assert move_experiment_rows(job.pk) == ""
    job.refresh_from_db()
    assert (job.state, job.problem) == ("done", "")
    return job


def make_archived(slug="old", *, rated=True):
    """Return an archived experiment with a row in every table whose rows move, of ratings only if it is `rated`."""
    dataset = factories.make_dataset(f"{slug}-items", approved=False)
    dataset.approve(by="test", reason="ready")
    models_here = [factories.make_model(f"{slug}-small"), factories.make_model(f"{slug}-large")]
    experiment = factories.make_experiment(slug, dataset=dataset, models=models_here, samples=2, scorers=["numeric"])
    worker = Worker.objects.create(name=slug, host="h", pid=1)
    for run in factories.make_runs(experiment, status="done"):
        factories.plan_trials(
            run,
            answer=lambda item, _, index: (
                factories.build_failed_fields("server")
                if index
                else {"answer": f'{item.target} \\n "x" \u6a21', "raw_response": "<think>x</think> y", "worker": worker}
            ),
        )
    write_ledger(experiment)
    Run.objects.filter(experiment=experiment).update(n_attempts=6)
    grade(experiment, by="test")
    done = list(Trial.objects.filter(run__experiment=experiment, status="done").order_by("pk"))
    one = make_grader(f"{slug}-judge")
    judge = GradeCondition.objects.create(
        experiment=experiment, grade_condition_id="judge--1", kind="judge", grader=one, rubric=one.rubric
    )
    Grading.objects.bulk_create([Grading(trial=each, condition=judge, score=0.5, parse_ok=True) for each in done])
    with allow_superseding():
        Grading.objects.filter(trial=done[0], condition=judge).update(score=0.1 + 0.2)
    Preference.objects.create(condition=judge, trial_a=done[0], trial_b=done[-1], winner="a")
    decided = GradeCondition.objects.create(
        experiment=experiment, grade_condition_id="decided--1", kind="adjudicated",
        parameters={"scale_min": 0, "scale_max": 1},
    )  # fmt: skip
    Adjudication.objects.create(condition=decided, trial=done[0], score=1, reason="Right", by=experiment.owner)
    (note,) = annotate(done[0], "note", "Look at this", by=experiment.owner)
    note.change_text("Look again", by=experiment.owner)
    annotate(done[1], "flag", "Wrong", by=experiment.owner)[0].remove(by=experiment.owner)
    CachedAnswer.objects.create(key=f"{slug}-key", trial=done[0])
    ExternalCall.objects.create(trial=done[2], form="openai", token="public", parameters={"n": 1}, reply="{}")
    texts = TextSet.objects.create(name=f"{slug}-texts", dataset=dataset, created_by=experiment.owner)
    ItemText.objects.create(text_set=texts, item=done[0].item, text="Count.", trial=done[0])
    if rated:
        close_rated_queues(experiment)
    experiment.archive(by="test", reason="published")
    return experiment


def close_rated_queues(experiment):
    """Close two queues over the answers: single ones on a dimension, and pairs by a rubric. Some ratings are undone."""
    slug = experiment.slug
    reading = make_answer_queue(f"{slug}-reading", experiment=experiment, raters_wanted=4, practice_items=1)
    rubric = make_strict_rubric("pairwise", name=f"{slug}-pairs")
    pairs = make_answer_queue(f"{slug}-pairs", experiment=experiment, dimensions=[], by=rubric, raters_wanted=4)
    for queue in (reading, pairs):
        rate_all(make_rater(queue, started=True), lambda due: 1 + due.position % 2)
        excluded, unfinished = make_rater(queue, started=True), make_rater(queue, started=True)
        rate_all(excluded, 2)
        excluded.exclude(by="test", reason="always the same")
        for value in (1, 2):  # The first value is undone.
            session.rate(unfinished, position=1, value=value, seconds=0.1 + 0.2)
            assert value == 2 or session.undo(unfinished)
        queue.close(by="test", reason="enough")


@pytest.fixture(autouse=True, scope="module")
def reports_of_file():
    """Build the report of each experiment once for all tests: it takes most of the time of storing rows."""
    with pytest.MonkeyPatch.context() as snapshot:
        snapshot.setattr(snapshots, "freeze_report", cache(freeze_report))
        yield


@shared_rows
def archived():
    make_other = make_archived("other")  # Its rows stay.
    assert make_other.is_archived
    return make_archived()


@shared_rows
def stored(archived_of_file):
    """Return the rows in a file of the archived experiment. Tests that need it archived come before this is made."""
    return store_rows(archived_of_file, by="test", reason="space")


def test_every_table_that_refers_to_a_trial_is_known():
    for related in Trial._meta.get_fields(include_hidden=True):
        if isinstance(related, ManyToOneRel) and related.related_model._meta.managed:
            assert related.related_model in TABLES, related.related_model


def test_rows_come_back_as_they_were(archived):
    before, ledger = read_rows(), read_ledger()
    assert all(before.values()), "the experiment has a row in every table"
    problems = list_differences()
    stored = store_rows(archived, by="test", reason="space")
    other = Experiment.objects.get(slug="other")
    for model in (Trial, Attempt):
        runs = set(model.objects.values_list("run__experiment", flat=True))
        assert runs == {other.pk}
    assert not ItemText.objects.filter(text_set__name="old-texts").exclude(trial=None).exists()
    assert verify(stored.path).problems == []

    bring_back(archived, by="test", reason="a question")
    assert read_rows() == before
    assert read_ledger() == ledger
    assert list_differences() == problems
    assert not StoredRows.objects.exists()
    assert [change.to_value for change in archived.history.all()[:2]] == ["archived", "stored"]


def test_counters_and_costs_stay_true_while_rows_are_in_a_file(archived):
    spent, ledger, problems = archived.spent_usd, read_ledger(), list_differences()
    counters = list(Run.objects.order_by("pk").values("n_done", "n_failed", "n_attempts", "spent_usd", "input_tokens"))
    (headline,) = load_headlines([Experiment.objects.with_totals().get(pk=archived.pk)], archived.owner).values()
    store_rows(archived, by="test", reason="space")
    archived.refresh_from_db()
    assert (archived.spent_usd, archived.status) == (spent, "stored")
    assert read_ledger() == ledger
    assert list_differences() == problems
    assert counters == list(
        Run.objects.order_by("pk").values("n_done", "n_failed", "n_attempts", "spent_usd", "input_tokens")
    )
    assert load_headlines([Experiment.objects.with_totals().get(pk=archived.pk)], archived.owner) == {
        archived.pk: headline
    }
    run = archived.runs.first()
    Run.objects.filter(pk=run.pk).update(n_done=99)
    assert f"run {run.pk}: n_done is 99, the rows say 3" in list_differences()


def test_the_file_is_a_snapshot_that_another_site_imports(stored):
    imported = import_snapshot(stored.path, stored.experiment.owner).experiment
    assert Trial.objects.filter(run__experiment=imported, status="done").count() == 6
    assert Rating.objects.given().filter(trial__run__experiment=imported).count() == stored.counts["rows"]["ratings"]


def test_a_changed_or_missing_file_brings_nothing_back(stored):
    archived, content = stored.experiment, stored.path.read_bytes()
    for damage in (content[:-200], content.replace(b"rows/", b"sows/", 1), b""):
        stored.path.write_bytes(damage)
        with pytest.raises(TransitionError):
            bring_back(archived, by="test")
    stored.path.unlink()
    with pytest.raises(TransitionError, match="there is no file"):
        bring_back(archived, by="test")
    assert StoredRows.objects.filter(experiment=archived).exists()
    stored.path.write_bytes(content)
    bring_back(archived, by="test")
    assert Trial.objects.filter(run__experiment=archived).count() == 12


def test_rows_that_came_back_are_compared_by_indexes(archived, monkeypatch):
    """Without an index, each row would be looked up among all others: the time would grow with their square."""
    compare, read = stored_rows._compare_with_file, []

    def count_rows_read():
        """Return how many rows of the tables of keys were read without an index."""
        with connection.cursor() as cursor:
            cursor.execute("SELECT sum(seq_tup_read) FROM pg_stat_xact_all_tables WHERE relname LIKE 'snapshot_keys%'")
            return int(cursor.fetchone()[0])

    def compare_and_count(*args, **options):
        with connection.cursor() as cursor:  # The planner would read so few rows without an index.
            cursor.execute("SET LOCAL enable_seqscan = off")
        before = count_rows_read()
        compare(*args, **options)
        read.append(count_rows_read() - before)

    monkeypatch.setattr(stored_rows, "_compare_with_file", compare_and_count)
    store_rows(archived, by="admin")
    bring_back(Experiment.objects.get(pk=archived.pk), by="admin")
    assert read == [0, 0]


def test_a_note_of_a_deleted_account_is_named(archived):
    guest = factories.make_user("guest", "Researcher")
    annotate(Trial.objects.filter(run__experiment=archived).first(), "note", "Mine", by=guest)
    store_rows(archived, by="test")
    guest.delete()
    with pytest.raises(TransitionError, match="refers to a row that was deleted meanwhile: Key"):
        bring_back(archived, by="test")
    assert StoredRows.objects.filter(experiment=archived).exists()


def test_rows_that_differ_from_the_written_file_stay(archived, monkeypatch):
    change_sum_of_trials(monkeypatch, "rows")
    with pytest.raises(TransitionError, match="are not those of the file"):
        store_rows(archived, by="test")
    assert Trial.objects.filter(run__experiment=archived).count() == 12


def test_rows_that_differ_from_their_file_do_not_come_back(stored, monkeypatch):
    change_sum_of_trials(monkeypatch, "site")
    with pytest.raises(TransitionError, match="are not those of the file"):
        bring_back(stored.experiment, by="test")
    assert not Trial.objects.filter(run__experiment=stored.experiment).exists()


def change_sum_of_trials(monkeypatch, folder):
    """Let the file have another sum of its part with the trials."""
    verify_file = stored_rows._verify_file
    changed = {f"{folder}/runs_app_trial.jsonl": "0" * 64}
    monkeypatch.setattr(stored_rows, "_verify_file", lambda *args: verify_file(*args) | changed)


def test_the_page_says_why_a_job_failed_and_offers_it_again(stored, client):
    archived = stored.experiment
    client.force_login(archived.owner)
    stored.path.rename(stored.path.with_suffix(".away"))
    address = reverse("experiment_bring_back", args=["old"])
    client.post(address, {"reason": "a question"})
    assert "there is no file" in move_experiment_rows(BackgroundJob.objects.get().pk)
    page = client.get(archived.get_absolute_url())
    assert "The rows were not brought back:</strong> there is no file" in page.text
    assert "Nothing was changed: the rows are in the file." in page.text
    assert address in page.text
    stored.path.with_suffix(".away").rename(stored.path)
    client.post(address, {"reason": "a question"})
    perform_job("bring back")
    assert "rows-job" not in client.get(archived.get_absolute_url()).text


def test_moving_rows_compares_only_the_counters_of_their_experiment(archived):
    other = Run.objects.filter(experiment__slug="other").first()
    run = archived.runs.first()
    Run.objects.filter(pk__in=[other.pk, run.pk]).update(n_done=99)
    of_one = {difference.row for difference in compare_counters(archived) if difference.counted == 99}
    of_all = {difference.row for difference in compare_counters() if difference.counted == 99}
    assert (of_one, of_all) == ({f"run {run.pk}"}, {f"run {run.pk}", f"run {other.pk}"})
    Run.objects.filter(pk=run.pk).update(n_done=3)
    with CaptureQueriesContext(connection) as queries:
        store_rows(archived, by="test", reason="space")
        bring_back(archived, by="test", reason="a question")
    whole = [query["sql"] for query in queries if "FROM runs_app_attempt GROUP BY" in query["sql"]]
    assert whole == []


def test_experiments_whose_rows_are_needed_stay(archived, client):
    active = factories.make_experiment("active")
    with pytest.raises(TransitionError, match="archive it first"):
        store_rows(active, by="test")
    queue = archived.rating_queues.get(name="old-reading")
    queues.open_queue(queue, by="test", reason="more ratings")
    with pytest.raises(TransitionError, match="close the rating queue old-reading first"):
        store_rows(archived, by="test")
    client.force_login(archived.owner)
    page = client.get(archived.get_absolute_url()).text
    assert "People can still rate answers of this experiment." in page
    assert queue.get_absolute_url() in page
    assert reverse("experiment_store", args=["old"]) not in page
    answer = client.post(reverse("experiment_store", args=["old"]), {"reason": "space"}, follow=True)
    assert "people can still rate answers of old; close the rating queue old-reading first" in answer.text
    assert not BackgroundJob.objects.exists()
    queue.close(by="test", reason="enough")
    assert reverse("experiment_store", args=["old"]) in client.get(archived.get_absolute_url()).text
    store_rows(archived, by="test")


def test_rows_of_a_queue_that_opened_meanwhile_stay(archived, monkeypatch):
    queue, verify_file = archived.rating_queues.get(name="old-reading"), stored_rows._verify_file

    def reopen(*args):
        queues.open_queue(queue, by="test", reason="more ratings")
        return verify_file(*args)

    monkeypatch.setattr(stored_rows, "_verify_file", reopen)
    before = read_rows()
    with pytest.raises(TransitionError, match="close the rating queue old-reading first"):
        store_rows(archived, by="test")
    assert read_rows() == before


def test_ratings_move_only_from_a_closed_queue_of_their_experiment(archived):
    queue, other = archived.rating_queues.get(name="old-reading"), Experiment.objects.get(slug="other")
    rating, answer = Rating.objects.given().filter(assignment__queue=queue).first(), queue.answers.first()
    dimensions = queue.dimensions.through.objects.filter(ratingqueue=queue)
    rows = [Rating.objects.filter(pk=rating.pk), RatedAnswer.objects.filter(pk=answer.pk)]

    def refuse(change):
        with (
            pytest.raises(IntegrityError, match=r"it stays|a queue that was open keeps|is not open"),
            transaction.atomic(),
        ):
            change()

    for row in rows:
        refuse(row.delete)
        with other.permit_deletion():
            refuse(lambda row=row: row._raw_delete(connection.alias))
        queues.open_queue(queue, by="test", reason="more ratings")
        with archived.permit_deletion():
            refuse(lambda row=row: row._raw_delete(connection.alias))
        queue.close(by="test", reason="enough")
    with archived.permit_deletion():
        refuse(lambda: rows[0].update(value=3))
        refuse(lambda: rows[1].update(kind="practice"))
        refuse(lambda: dimensions._raw_delete(connection.alias))
        for row in rows:
            assert row._raw_delete(connection.alias) == 1
    for one in (rating, answer):
        refuse(lambda one=one: one.save(force_insert=True))
        with other.permit_deletion():
            refuse(lambda one=one: one.save(force_insert=True))
        with archived.permit_deletion():
            one.save(force_insert=True)


def test_queues_do_not_change_while_their_rows_are_in_a_file(stored):
    archived = stored.experiment
    before = list(RaterAssignment.objects.order_by("pk").values())
    for queue in archived.rating_queues.all():
        with pytest.raises(QueueError, match="the rows of old are in a file; bring them back first"):
            queues.open_queue(queue, by="test", reason="more ratings")
        rater = queue.assignments.get(number=3)
        for change in (rater.release, rater.exclude):
            with pytest.raises(QueueError, match="the rows of old are in a file; bring them back first"):
                change(by="test", reason="too slow")
    draft = make_answer_queue("draft", experiment=archived, opened=False)
    with pytest.raises(QueueError, match="bring them back first"):
        queues.open_queue(draft, by="test", reason="ready")
    assert list(RaterAssignment.objects.order_by("pk").values()) == before
    bring_back(archived, by="test")
    queue = archived.rating_queues.get(name="old-reading")
    queue.assignments.get(number=3).release(by="test", reason="too slow")
    queues.open_queue(queue, by="test", reason="more ratings")
    rate_all(make_rater(queue, started=True), 2)


def test_pages_of_queues_say_where_the_ratings_are(archived, client):
    client.force_login(archived.owner)
    rater = archived.rating_queues.get(name="old-reading").assignments.get(number=1)
    names = ("rating_queue_detail", "rating_queue_export")
    addresses = [reverse(name, args=[f"old-{queue}"]) for name in names for queue in ("reading", "pairs")]
    addresses.append(reverse("experiment_agreement", args=["old"]))
    before = [read_page(client, address) for address in addresses]
    of_rater = reverse("rating_item", args=["old-reading"])
    assert f"Your {rater.progress.done} ratings are saved." in sign_in(rater.user).get(of_rater).text
    stored = store_rows(archived, by="test")
    for address in addresses:
        page = client.get(address)
        assert (page.status_code, page.text.count("are in a file")) == (409, 1), address
        assert "calls, grades and ratings of this experiment are in a file" in page.text
        assert reverse("experiment_bring_back", args=["old"]) in page.text
    act = reverse("rating_queue_act", args=["old-reading", "open"])
    assert client.post(act, {"reason": "more"}).status_code == 409
    assert f"<dt>Ratings by people</dt><dd>{stored.counts['rows']['ratings']}</dd>" in page.text
    of_other = Experiment.objects.get(slug="other").rating_queues.with_counts()
    cells = re.findall(r'data-label="Ratings".*?</td>', client.get(reverse("rating_queue_list")).text, re.DOTALL)
    texts = [" ".join(re.sub("<[^>]+>", "", cell.partition(">")[2]).split()) for cell in cells]
    assert sorted(texts) == sorted([*(str(queue.n_given) for queue in of_other), "in a file", "in a file"])
    for order in ("n_given", "-n_given"):
        shown = client.get(reverse("rating_queue_list"), {"sort": order}).context["table"].rows
        assert [row.record.name.startswith("old-") for row in shown] == [False] * (len(shown) - 2) + [True] * 2
    rated = sign_in(rater.user).get(of_rater).text
    assert "Your ratings are saved in a file." in rated
    for hidden in ("old-small", "old-large", "0 ratings"):
        assert hidden not in rated
    bring_back(archived, by="test")
    assert [read_page(client, address) for address in addresses] == before
    draft = make_answer_queue("draft", experiment=archived, opened=False)
    assert client.get(draft.get_absolute_url()).status_code == 200


def test_a_stored_experiment_can_be_deleted_but_not_its_runs():
    archived = make_archived(rated=False)
    store_rows(archived, by="test")
    with pytest.raises(TransitionError, match="bring them back first"):
        deletion.delete_run(archived.runs.first(), by="test")
    deletion.delete(archived, by="test", reason="done")
    assert not Experiment.objects.filter(pk=archived.pk).exists()


def test_a_stored_experiment_with_queues_stays(stored):
    archived = stored.experiment
    with pytest.raises(TransitionError, match="the rating queue old-pairs refers to old; it stays archived"):
        deletion.delete(archived, by="test", reason="done")
    bring_back(archived, by="test")
    assert Rating.objects.filter(trial__run__experiment=archived).exists()


def test_the_commands_store_and_bring_back(archived):
    output = io.StringIO()
    call_command("experiment", "store", "old", "--reason", "space", stdout=output)
    assert str(StoredRows.objects.get().path) in output.getvalue()
    with pytest.raises(CommandError, match="experiment bring-back old"):
        call_command("status", "old")
    call_command("experiment", "bring-back", "old", "--reason", "a question", stdout=output)
    assert Trial.objects.filter(run__experiment=archived).count() == 12
    with pytest.raises(CommandError, match="in the database already"):
        call_command("experiment", "bring-back", "old", "--reason", "again")


def test_pages_of_a_stored_experiment_say_so_and_bring_it_back(archived, client):
    client.force_login(archived.owner)
    addresses = [
        reverse(name, args=["old"])
        for name in (
            "experiment_detail",
            "experiment_results",
            "experiment_files",
            "experiment_progress",
            "experiment_matrix",
        )
    ]
    addresses += [archived.runs.first().get_absolute_url(), f"{reverse('compare')}?experiment=old&experiment=other"]
    data = {"reason": "space"}
    page = client.post(reverse("experiment_store", args=["old"]), data, follow=True)
    assert "Waiting for a worker</strong> to store the rows in a file." in page.text
    assert "owner requested it" in page.text
    assert reverse("experiment_store", args=["old"]) not in page.text
    again = client.post(reverse("experiment_store", args=["old"]), data, follow=True)
    assert "already being moved" in again.text
    poll = {"HX-Request": "true", "HX-Target": "rows-job"}
    assert "HX-Refresh" not in client.get(addresses[0], headers=poll)
    assert perform_job("store").total > 0
    assert client.get(addresses[0], headers=poll)["HX-Refresh"] == "true"
    for address in addresses:
        page = client.get(address)
        assert page.status_code == 409, address
        assert "are in a file" in page.text
        assert "Bring back" in page.text
    assert client.get("/api/v1/experiments/old/results").status_code == 409
    assert client.get("/api/v1/experiments/old").json()["status"] == "stored"
    assert "Stored" in client.get(reverse("experiment_list")).text
    reader = factories.make_user("reader", "Viewer")
    archived.share("group", by="test")
    client.force_login(reader)
    assert "Bring back" not in client.get(addresses[0]).text
    client.force_login(archived.owner)
    client.post(reverse("experiment_bring_back", args=["old"]), data)
    waiting = client.get(addresses[0], headers=poll)
    assert (waiting.status_code, "HX-Refresh" in waiting) == (200, False), "htmx shows no response with an error"
    assert "to bring the rows back." in waiting.text
    assert perform_job("bring back").total > 0
    assert client.get(addresses[0], headers=poll)["HX-Refresh"] == "true"
    assert [client.get(address).status_code for address in addresses] == [200] * len(addresses)
