"""Programs share the budget of an experiment over real HTTP: the process of the gateway, and its death."""

import http.client
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from decimal import Decimal

import pytest

from evalsite.lib.ops.postgres import Embedded
from runs_app.simulator import SimulatorConfig
from runs_app.simulator.process import SimulatorProcess, simulator_process
from tests.factories.model_server import ModelServer, model_server
from tests.system.postgres.conftest import query
from tests.system.up.conftest import Site, spaced_folder, wait_until

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
simulated = factories.make_endpoint("simulated", base_url="{simulator}/v1", max_concurrency=64, adaptive=False)
simulated_claude = factories.make_endpoint(
    "simulated-claude", provider="anthropic", base_url="{simulator}", max_concurrency=64, adaptive=False)
models = [factories.make_model("sim", endpoint=simulated, **prices),
    factories.make_model("claude-sim", endpoint=simulated_claude, max_output_tokens=500, **prices),
    factories.make_model("small", endpoint=openai, **prices),
    factories.make_model("claude-small", endpoint=claude, **prices)]
team = make_team()
for name, budget in (("race", {budget}), ("free", None), ("closed", None), ("killed", Decimal("0.05"))):
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
    simulator: SimulatorProcess


@pytest.fixture(scope="module")
def lab(prepared):
    simulated = simulator_process(SimulatorConfig(event_ms=30))
    with model_server() as (url, provider), simulated as simulator, spaced_folder(prepared) as place:
        site = Lab(place)
        wait_until(site.is_served)
        code = FILL.format(url=url, simulator=simulator.url.removesuffix("/v1"), budget=f"Decimal('{BUDGET}')")
        site.tokens = dict(
            zip(
                ("race", "free", "closed", "killed"),
                site.manage("shell", "--no-imports", "-c", code).split(),
                strict=True,
            )
        )
        site.provider, site.simulator = provider, simulator
        yield site
        site.stop()


def ask(site, name, text, *, path="chat/completions", header="Authorization", **fields):
    model = fields.pop("model", "small" if path == "chat/completions" else "claude-small")
    body = {"model": model, "max_tokens": 50, "messages": [{"role": "user", "content": text}], **fields}
    token = site.tokens[name]
    headers = {"Content-Type": "application/json", header: token if header == "x-api-key" else f"Bearer {token}"}
    address = f"http://127.0.0.1:{site.port}/gateway/{name}/v1/{path}"
    return urllib.request.urlopen(urllib.request.Request(address, json.dumps(body).encode(), headers), timeout=60)


def count(site, sql):
    return query(Embedded(site.place / "data" / "postgres"), sql)


def expire_calls(site):
    sql = "UPDATE runs_app_trial SET lease_until = now() - interval '1 minute' WHERE status = 'running' RETURNING 1"
    query(Embedded(site.place / "data" / "postgres"), f"WITH expired AS ({sql}) SELECT count(*) FROM expired")


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
    spending = "SELECT spent_usd FROM runs_app_experiment WHERE slug = 'race'"
    wait_until(lambda: count(lab, spending) == answered * COST)
    spent = count(lab, spending)
    assert BUDGET - Decimal("0.0006") < spent <= BUDGET, "nearly all of the budget was used, and no more"
    assert count(lab, "SELECT reserved_usd FROM runs_app_experiment WHERE slug = 'race'") == 0
    assert count(lab, "SELECT count(DISTINCT session) FROM runs_app_externalcall") == 3
    lab.manage("reconcile")


def test_a_call_waits_while_the_gateway_is_replaced(lab):
    os.kill(lab.child("gateway_process"), signal.SIGKILL)
    with ask(lab, "free", "hello") as answer:
        assert "echo: hello" in answer.read().decode()


def test_calls_and_pages_share_a_connection(lab):
    """Proxies send the requests of all programs and people over a few connections."""
    connection = http.client.HTTPConnection("127.0.0.1", lab.port, timeout=60)
    body = {"model": "small", "max_tokens": 50, "messages": [{"role": "user", "content": "hello"}]}
    headers = {"Content-Type": "application/json", "Authorization": f"Bearer {lab.tokens['free']}"}
    for _ in range(3):
        connection.request("POST", "/gateway/free/v1/chat/completions", json.dumps(body), headers)
        own = connection.sock
        assert b"echo: hello" in connection.getresponse().read()
        connection.request("GET", "/accounts/login/")
        assert b"<form" in connection.getresponse().read()
        assert connection.sock is own, "the connection stays open"
    connection.close()


def test_a_program_without_access_keeps_no_connection(lab):
    with socket.create_connection(("127.0.0.1", lab.port), timeout=30) as connection:
        head = "POST /gateway/free/v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 2\r\n\r\n{}"
        connection.sendall(head.encode())
        received = b"".join(iter(lambda: connection.recv(65536), b""))
    assert received.startswith((b"HTTP/1.1 401", b"HTTP/1.1 403")), "and the site then closed the connection"


def test_a_revoked_token_calls_nothing_more(lab):
    code = "from runs_app.models import ApiToken; ApiToken.objects.get(experiment__slug='closed').revoke(by='test')"
    ask(lab, "closed", "hello").read()
    lab.manage("shell", "--no-imports", "-c", code)
    calls = len(lab.provider.requests)
    with pytest.raises(urllib.error.HTTPError, match="401"):
        ask(lab, "closed", "hello")
    assert len(lab.provider.requests) == calls


def test_large_requests_reach_the_model_with_either_header(lab):
    text = "long " * 40_000
    for path, header in (("chat/completions", "Authorization"), ("messages", "x-api-key")):
        with ask(lab, "free", text, path=path, header=header) as answer:
            assert text in answer.read().decode()


@pytest.mark.parametrize(("path", "model"), [("chat/completions", "sim"), ("messages", "claude-sim")])
def test_a_stream_of_the_simulated_provider_arrives_while_it_is_made(path, model, lab):
    done = f"SELECT count(*) FROM runs_app_trial t JOIN runs_app_run r ON r.id = t.run_id JOIN runs_app_condition c \
        ON c.id = r.condition_id JOIN runs_app_languagemodel m ON m.id = c.model_id \
        WHERE m.name = '{model}' AND t.status = 'done' AND t.cost_usd > 0"
    with ask(lab, "free", "How many legs has a spider?", path=path, model=model, stream=True) as answer:
        times = [time.monotonic() for line in answer if line.startswith(b"data")]
    assert len(times) > 5
    assert times[-1] - times[0] > 0.03 * (len(times) - 4), "each event comes 30 ms after the one before it"
    wait_until(lambda: count(lab, done) == 1)


@pytest.mark.parametrize(("path", "model"), [("chat/completions", "sim"), ("messages", "claude-sim")])
def test_a_program_that_leaves_a_stream_early_pays_what_the_stream_cost(path, model, lab):
    question = f"How many legs has an ant, {model}?"
    calls = f"FROM runs_app_trial WHERE status = 'done' AND messages::text LIKE '%an ant, {model}?%'"
    with ask(lab, "free", question, path=path, model=model, stream=True) as answer:
        answer.read()
    with ask(lab, "free", question, path=path, model=model, stream=True) as answer:
        assert answer.readline()
    wait_until(lambda: count(lab, f"SELECT count(*) {calls} AND cost_usd > 0") == 2)
    assert count(lab, f"SELECT count(DISTINCT (answer, output_tokens, cost_usd)) {calls}") == 1


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


def test_a_killed_gateway_loses_no_money(lab):
    running = "SELECT count(*) FROM runs_app_trial WHERE status = 'running' AND messages <> '[]'"
    prepared = "SELECT count(*) FROM runs_app_trial WHERE messages = '[]'"
    wait_until(lambda: count(lab, running) == count(lab, prepared) == 0)
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
    os.kill(lab.child("gateway_process"), signal.SIGKILL)
    thread.join()
    assert outcomes == ["cut"]
    wait_until(lambda: count(lab, prepared) == 0)
    expire_calls(lab)
    lab.manage("sweep_stale_claims")
    assert count(lab, running) == 0
    lost = "SELECT kept_usd FROM runs_app_attempt WHERE outcome = 'lost' AND cost_usd IS NULL"
    assert count(lab, "SELECT reserved_usd FROM runs_app_experiment WHERE slug = 'free'") == before + count(lab, lost)
    lab.manage("reconcile")


def test_kill_9_loses_and_doubles_no_call_of_programs_that_share_a_budget(lab):
    texts, answered, stopped = set(), set(), threading.Event()

    def call(tool):
        n = 0
        while not stopped.is_set() and n < 200:
            n += 1
            text = f"tool {tool} call {n}"
            texts.add(text)
            try:
                with ask(lab, "killed", text) as answer:
                    assert f"echo: {text}" in answer.read().decode()
                answered.add(text)
            except (OSError, http.client.HTTPException):
                time.sleep(0.05)

    tools = [threading.Thread(target=call, args=(tool,)) for tool in range(4)]
    for tool in tools:
        tool.start()
    taken = []
    for kill in range(3):
        wait_until(lambda kill=kill: len(answered) >= 40 * (kill + 1))
        taken.append(count(lab, "SELECT spent_usd + reserved_usd FROM runs_app_experiment WHERE slug = 'killed'"))
        os.kill(lab.child("gateway_process"), signal.SIGKILL)
    wait_until(lambda: len(answered) >= 160)
    stopped.set()
    for tool in tools:
        tool.join()
    mine = "JOIN runs_app_run r ON r.id = t.run_id JOIN runs_app_experiment e ON e.id = r.experiment_id \
        WHERE e.slug = 'killed'"
    wait_until(lambda: count(lab, f"SELECT count(*) FROM runs_app_trial t {mine} AND t.messages = '[]'") == 0)
    expire_calls(lab)
    lab.manage("sweep_stale_claims")
    lab.manage("reconcile")
    received = [body["messages"][-1]["content"] for _, _, body in lab.provider.requests]
    received = [text for text in received if text in texts]
    assert len(received) == len(set(received)), "no call was made twice"
    rows = f"SELECT count(*) FROM runs_app_trial t {mine}"
    assert len(received) <= count(lab, rows) <= len(received) + 12, "a call may have died before it was sent"
    assert len(answered) <= count(lab, f"{rows} AND t.status = 'done'") <= len(received)
    attempts = f"SELECT count(*) FROM runs_app_attempt a JOIN runs_app_trial t ON t.id = a.trial_id {mine}"
    assert count(lab, attempts) == count(lab, rows), "each call has one row"
    spent = count(lab, "SELECT spent_usd FROM runs_app_experiment WHERE slug = 'killed'")
    assert spent == COST * count(lab, f"{rows} AND t.status = 'done'")
    assert max(taken) <= Decimal("0.05")
