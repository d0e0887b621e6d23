"""A drain whose requests are shaped once records the same rows as one whose calls litellm makes."""

import re
from decimal import Decimal

import pytest

from grading_app.grading.consistency_check import find_differences
from runs_app.llm import gateway
from runs_app.llm.request_templates import RequestTemplates
from runs_app.models import Attempt, Run, Trial
from runs_app.simulator import SimulatorConfig, simulator_process
from tests import factories
from tests.factories.engine import drain

pytestmark = pytest.mark.django_db(transaction=True)

ITEMS, SAMPLES = 12, 2
# What two equal calls may differ in: keys, times, and ids that are drawn anew.
OWN = {"id", "run_id", "trial_id", "token", "worker_id", "item_id", "latency_ms", "trace_id", "response_id"}


def make_experiment(name, dataset, provider, url):
    endpoint = factories.make_endpoint(name, provider=provider, base_url=url, adaptive=False)
    model = factories.make_model(
        name,
        endpoint=endpoint,
        model="sim-a",
        input_price=Decimal(2),
        output_price=Decimal(10),
        price_source="a list",
    )
    return factories.make_experiment(
        name,
        dataset=dataset,
        models=[model],
        samplers=[factories.make_sampler(name, temperature=0.5, max_tokens=64, seed=3)],
        samples=SAMPLES,
        cache=False,
        max_usd=None,
        max_attempts=2,
        stop_failure_rate=1,
    )


def read_rows(experiment):
    """Return the columns of each trial and its attempts, by item and sample."""

    def compare(row):
        kept = {name: value for name, value in row.items() if name not in OWN and not name.endswith("_at")}
        return kept | {"error": re.sub(r'chatcmpl-\w+|"created": ?\d+', "", row["error"])}  # An error quotes its reply.

    return {
        (trial["item_id"], trial["sample_idx"]): [
            compare(row) for row in (trial, *Attempt.objects.filter(trial_id=trial["id"]).order_by("id").values())
        ]
        for trial in Trial.objects.filter(run__experiment=experiment).values()
    }


FAULTS = {"500": 0.15, "malformed": 0.15, "empty": 0.1, "refusal": 0.1, "truncated": 0.1, "no_choices": 0.1}


@pytest.mark.parametrize(
    ("provider", "faults"),
    [
        ("openai", {}),
        *(pytest.param(name, FAULTS, marks=pytest.mark.slow) for name in ("openai", "hosted_vllm", "openrouter")),
    ],
)
def test_both_ways_record_the_same_rows(provider, faults, monkeypatch):
    completions = []
    start = gateway._start_completion

    def count_completion(request, exchange):
        completions.append(request)
        return start(request, exchange)

    async def leave_to_litellm(_request, _key):
        return None

    monkeypatch.setattr(gateway, "_start_completion", count_completion)
    dataset = factories.make_dataset("questions", ITEMS)
    counts = {}
    rows = {}
    with simulator_process(SimulatorConfig(faults=faults)) as simulator:
        for way, shape in (("once", gateway._shape), ("litellm", leave_to_litellm)):
            experiment = make_experiment(way, dataset, provider, simulator.url)
            (run,) = factories.make_runs(experiment)
            factories.plan_trials(run)
            monkeypatch.setattr(gateway, "_templates", RequestTemplates(shape))
            completions.clear()
            simulator.reset()
            drain(gateway.call)
            counts[way], rows[way] = len(completions), read_rows(experiment)
            assert simulator.counters()["requests"] == Attempt.objects.filter(trial__run=run).count()
    assert len(rows["once"]) == ITEMS * SAMPLES
    assert rows["once"] == rows["litellm"]
    assert find_differences() == []
    runs = [Run.objects.get(experiment__slug=way) for way in rows]
    assert runs[0].spent_usd == runs[1].spent_usd > 0
    assert counts["litellm"] >= ITEMS * SAMPLES
    n_unusual = sum(1 for trial in rows["once"].values() for call in trial[1:] if call.get("error_class"))
    assert counts["once"] <= 2 * SAMPLES + n_unusual, "two for each seed"
