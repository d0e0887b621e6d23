"""Programs share the budget of an experiment over real HTTP: the web server, its threads, and its death."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from decimal import Decimal

import pytest

from evalsite.lib.ops.postgres import Embedded
from tests.factories.model_server import ModelServer, model_server
from tests.system.postgres.conftest import query
from tests.system.up.conftest import Site, list_children, spaced_folder, wait_until

pytestmark = pytest.mark.processes

COST = Decimal("0.00002")
BUDGET = Decimal("0.0030")
FILL = """
from decimal import Decimal
from tests import factories
from tests.factories.people import make_team
from tests.factories.tokens import make_token
prices = {{"input_price": Decimal(1), "output_price": Decimal(2)}}
openai = factories.make_endpoint("shop", base_url="{url}/v1", max_concurrency=64, adaptive=False)
claude = factories.make_endpoint("claude", provider="anthropic", base_url="{url}", max_concurrency=64, adaptive=False)
models = [factories.make_model("small", endpoint=openai, **prices),
    factories.make_model("claude-small", endpoint=claude, **prices)]
team = make_team()
for name, budget in (("race", {budget}), ("free", None)):
    experiment = factories.make_experiment(name, owner=team.owner, models=models, max_usd=budget, max_concurrency=64)
    print(make_token(team.owner, "run", experiment=experiment)[1])
"""
TOOL = """
import sys
import openai
client = openai.OpenAI(base_url=sys.argv[1], api_key=sys.argv[2], max_retries=20)
answered = 0
try:
    while True:
        client.chat.completions.create(
            model="small", messages=[{"role": "user", "content": "hello"}], max_tokens=50, user=f"tool {sys.argv[3]}")
        answered += 1
except openai.APIStatusError as error:
    print(answered, error.status_code, error.code)
"""


class Lab(Site):
    """A running site with the tokens of its two experiments, and the provider that it calls."""

    tokens: dict[str, str]
    provider: type[ModelServer]


@pytest.fixture(scope="module")
def lab(prepared):
    with model_server() as (url, provider), spaced_folder(prepared) as place:
        site = Lab(place)
        wait_until(site.is_served)
        code = FILL.format(url=url, budget=f"Decimal('{BUDGET}')")
        site.tokens = dict(zip(("race", "free"), site.manage("shell", "--no-imports", "-c", code).split(), strict=True))
        site.provider = provider
        yield site
        site.stop()


def ask(site, name, text, *, path="chat/completions", header="Authorization", **fields):
    model = "small" if path == "chat/completions" else "claude-small"
    body = {"model": model, "max_tokens": 50, "messages": [{"role": "user", "content": text}], **fields}
    token = site.tokens[name]
    headers = {"Content-Type": "application/json", header: token if header == "x-api-key" else f"Bearer {token}"}
    address = f"http://127.0.0.1:{site.port}/gateway/{name}/v1/{path}"
    return urllib.request.urlopen(urllib.request.Request(address, json.dumps(body).encode(), headers), timeout=60)


def count(site, sql):
    return query(Embedded(site.place / "data" / "postgres"), sql)


def test_three_tools_that_race_never_exceed_the_budget(lab):
    address = f"http://127.0.0.1:{lab.port}/gateway/race/v1"
    tools = [
        subprocess.Popen(
            [sys.executable, "-c", TOOL, address, lab.tokens["race"], str(n)], stdout=subprocess.PIPE, text=True
        )
        for n in range(3)
    ]
    ends = [tool.communicate(timeout=300)[0].split() for tool in tools]
    assert [end[1:] for end in ends] == [["402", "insufficient_quota"]] * 3
    answered = sum(int(end[0]) for end in ends)
    spent = count(lab, "SELECT spent_usd FROM runs_app_experiment WHERE slug = 'race'")
    assert spent == answered * COST
    assert BUDGET - Decimal("0.0006") < spent <= BUDGET, "nearly all of the budget was used, and no more"
    assert count(lab, "SELECT reserved_usd FROM runs_app_experiment WHERE slug = 'race'") == 0
    assert count(lab, "SELECT count(DISTINCT session) FROM runs_app_externalcall") == 3
    lab.manage("reconcile")


def test_large_requests_reach_the_model_with_either_header(lab):
    text = "long " * 40_000
    for path, header in (("chat/completions", "Authorization"), ("messages", "x-api-key")):
        with ask(lab, "free", text, path=path, header=header) as answer:
            assert text in answer.read().decode()


def test_a_stream_arrives_while_it_is_made(lab):
    with ask(lab, "free", "hello", stream=True) as answer:
        began = time.monotonic()
        times = [time.monotonic() - began for line in answer if line.startswith(b"data")]
    assert times[-1] - times[0] > 0.04, "five events, each after 20 ms"


def test_a_program_that_leaves_a_stream_early_pays_what_the_stream_cost(lab):
    done = "SELECT count(*) FROM runs_app_trial WHERE status = 'done' AND cost_usd = 0.00002"
    before = count(lab, done)
    with ask(lab, "free", "hello", stream=True) as answer:
        assert answer.readline().startswith(b"data")
    wait_until(lambda: count(lab, done) == before + 1)


def test_calls_that_wait_for_models_delay_no_page(lab):
    threads = [threading.Thread(target=lambda: ask(lab, "free", "slow").read()) for _ in range(24)]
    for thread in threads:
        thread.start()
    wait_until(lambda: lab.provider.in_flight >= 20)
    began = time.monotonic()
    assert b"ok" in lab.get("/healthz")
    assert b"<form" in lab.get("/accounts/login/")
    assert lab.provider.in_flight > 0, "the calls were still waiting"
    assert time.monotonic() - began < 1.5
    for thread in threads:
        thread.join()


def test_a_killed_web_process_loses_no_money(lab):
    running = "SELECT count(*) FROM runs_app_trial WHERE status = 'running'"
    before = count(lab, "SELECT reserved_usd FROM runs_app_experiment WHERE slug = 'free'")
    outcomes = []

    def call():
        try:
            ask(lab, "free", "slow").read()
            outcomes.append("answered")
        except (OSError, urllib.error.URLError):
            outcomes.append("cut")

    thread = threading.Thread(target=call)
    thread.start()
    wait_until(lambda: count(lab, running) == 1)
    web = lab.child("gunicorn")
    for pid in (*list_children(web), web):
        os.kill(pid, signal.SIGKILL)
    thread.join()
    assert outcomes == ["cut"]
    wait_until(lab.is_served)
    expire = "UPDATE runs_app_trial SET lease_until = now() - interval '1 minute' WHERE status = 'running' RETURNING 1"
    count(lab, expire)
    lab.manage("sweep_stale_claims")
    assert count(lab, running) == 0
    lost = "SELECT kept_usd FROM runs_app_attempt WHERE outcome = 'lost' AND cost_usd IS NULL"
    assert count(lab, "SELECT reserved_usd FROM runs_app_experiment WHERE slug = 'free'") == before + count(lab, lost)
    lab.manage("reconcile")
