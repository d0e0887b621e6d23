"""Live and silent workers, and the response cache, which operators may clear."""

import re
from datetime import timedelta

import pytest
import time_machine
from django.utils import timezone

from evalsite.lib.ops.versions import get_version
from evalsite.lib.text.number_format import format_count
from runs_app.engine.external_queue import open_spool
from runs_app.models import CachedAnswer, Trial, Worker
from runs_app.monitoring.blockers import list_troubles
from runs_app.views import endpoints

LIVE = 'hx-trigger="every 5s"'
PURGE = "/endpoints/cache/purge/"


def make_worker(host, *, seen_s_ago=0, **fields):
    worker = Worker.objects.create(name=f"{host}:7:0", host=host, pid=70_007, version="0.1.0", **fields)
    Worker.objects.filter(pk=worker.pk).update(seen_at=timezone.now() - timedelta(seconds=seen_s_ago))


def find_row(text, host):
    return next(row for row in text.split("<tr") if host in row)


def test_a_worker_of_another_version_is_flagged_while_it_is_alive(as_):
    make_worker("bench", per_minute=1_200.4)
    make_worker("stopped", seen_s_ago=5, stopped_at=timezone.now())
    text = re.sub(r"\n\s*", " ", as_("researcher").get("/workers/").content.decode())
    assert f'1 alive worker runs a different version from this site (<span class="mono">{get_version()}</span>' in text
    assert '<span class="chip">different</span>' in find_row(text, "bench")
    assert format_count(1_200) in find_row(text, "bench")
    Worker.objects.update(version=get_version())
    text = as_("researcher").get("/workers/").content.decode()
    assert '<span class="chip">different</span>' not in text


def test_the_process_of_the_gateway_is_no_worker_of_the_page(as_):
    make_worker("bench")
    spool, worker_id = open_spool()
    spool.close()
    gateway = Worker.objects.get(pk=worker_id)
    assert gateway.is_gateway
    text = as_("researcher").get("/workers/").content.decode()
    assert "bench" in text
    assert text.count("<tr") == 2, "the head and the worker"
    Worker.objects.filter(is_gateway=False).delete()
    assert list_troubles() == [], "it is no worker that could make the calls of a run"


def test_the_databases_clock_decides_which_workers_are_alive(as_):
    make_worker("bench")
    with time_machine.travel(timezone.now() + timedelta(minutes=5), tick=True):
        assert "Alive" in find_row(as_("operator").get("/workers/").content.decode(), "bench")


@pytest.mark.parametrize(
    ("seen_s_ago", "is_stopped", "state"),
    [(0, False, "Alive"), (50, False, "Alive"), (70, False, "Silent"), (70, True, "Stopped"), (0, True, "Stopped")],
)
def test_a_worker_is_silent_after_a_minute_unless_it_stopped(as_, seen_s_ago, is_stopped, state):
    stopped_at = timezone.now() if is_stopped else None
    make_worker("bench", seen_s_ago=seen_s_ago, stopped_at=stopped_at, in_flight=41, recorded=1_234)
    text = as_("researcher").get("/workers/").content.decode()
    row = find_row(text, "bench")
    assert re.search(rf'data-label="State".*{state}', row[: row.index('data-label="Version"')], re.DOTALL)
    for shown in ("70007", "0.1.0", "41", format_count(1_234)):
        assert shown in row
    assert (LIVE in text) is (state == "Alive")


def test_a_poll_gets_only_the_live_part(as_):
    make_worker("bench")
    part = as_("researcher").get("/workers/", headers={"HX-Request": "true"}).content.decode()
    assert part.lstrip().startswith('<div id="workers"')
    assert "<html" not in part


def test_the_page_shows_the_latest_hundred_workers(as_, django_assert_num_queries):
    for number in range(105):
        make_worker(f"bench-{number}-", seen_s_ago=number)
    client = as_("researcher")
    with django_assert_num_queries(5):
        text = client.get("/workers/").content.decode()
    assert "bench-0-" in text
    assert "bench-99-" in text
    assert "bench-100-" not in text


def test_without_workers_the_page_says_how_they_start(as_):
    assert "manage.py drain" in as_("researcher").get("/workers/").content.decode()


# --- the response cache


@pytest.fixture
def cached_answers(lab):
    trials = Trial.objects.filter(status="done")
    CachedAnswer.objects.bulk_create(CachedAnswer(key=f"k{trial.pk}", trial=trial) for trial in trials)
    return trials.count()


def test_the_endpoints_page_counts_cached_answers_and_only_operators_may_clear_them(cached_answers, as_):
    for role, offered in (("researcher", False), ("operator", True)):
        text = as_(role).get("/endpoints/").content.decode()
        assert f"{cached_answers} answers are cached" in " ".join(text.split())
        assert (PURGE in text) is offered


def test_counting_cached_answers_ends_at_a_limit(cached_answers, as_, monkeypatch):
    monkeypatch.setattr(endpoints, "CACHE_COUNT_LIMIT", cached_answers - 1)
    assert f"{cached_answers - 1} answers or more are cached" in " ".join(
        as_("operator").get("/endpoints/").content.decode().split()
    )


def test_clearing_the_cache_keeps_the_trials(cached_answers, as_):
    assert as_("researcher").post(PURGE).status_code == 404
    assert CachedAnswer.objects.count() == cached_answers
    before = list(Trial.objects.order_by("pk").values_list("pk", "answer"))
    text = as_("operator").post(PURGE, follow=True).content.decode()
    assert f"{cached_answers} cached answers were cleared" in text
    assert not CachedAnswer.objects.exists()
    assert list(Trial.objects.order_by("pk").values_list("pk", "answer")) == before


def test_an_invalid_reason_is_an_error_and_nothing_is_cleared(cached_answers, as_):
    text = as_("operator").post(PURGE, {"reason": "x" * 10_000}, follow=True).content.decode()
    assert "at most" in text
    assert CachedAnswer.objects.count() == cached_answers


def test_the_page_shows_who_cleared_the_cache_and_why(cached_answers, as_):
    as_("operator").post(PURGE, {"reason": "<b>prices</b> changed"})
    text = " ".join(as_("researcher").get("/endpoints/").content.decode().split())
    assert f"{cached_answers} answers, by operator: &lt;b&gt;prices&lt;/b&gt; changed" in text
    assert "0 answers are cached" in text
