"""The counters of the simulated provider."""

import asyncio

from runs_app.simulator import SimulatorConfig
from tests.integration.simulator.http_client import Client, run_with_simulator, wait_until_in_flight


def test_counters_cover_requests_models_statuses_and_repeated_bodies() -> None:
    async def scene(client: Client) -> None:
        await asyncio.gather(*(client.ask(f"question {number}", "sim/a") for number in range(10)))
        await client.ask("question 3", "sim/a")
        await client.ask("question 3", "sim/a")
        await client.ask("question 3", "sim/b")
        counters = await client.counters()
        assert counters["requests"] == 13
        assert counters["models"] == {"sim/a": 12, "sim/b": 1}
        assert counters["statuses"] == {"200": 13}
        assert counters["unique_bodies"] == 11
        assert counters["repeated_bodies"] == 1
        assert counters["answered_again"] == 1
        assert counters["in_flight"] == 0
        assert 1 <= counters["peak_in_flight"] <= 10
        assert counters["requests_per_s"] > 0

    run_with_simulator(SimulatorConfig(latency_ms=20), scene)


def test_a_retried_error_counts_as_a_repeated_body_and_one_answer() -> None:
    async def scene(client: Client) -> None:
        await client.post("/faults", {"errors": "500=1"})
        await client.ask("question")
        await client.post("/faults", {"errors": ""})
        await client.ask("question")
        counters = await client.counters()
        assert counters["repeated_bodies"] == 1
        assert counters["answered_again"] == 0
        assert counters["answers"] == 1
        assert counters["faults"] == {"500": 1}

    run_with_simulator(SimulatorConfig(), scene)


def test_requests_in_flight_are_counted_until_the_client_disconnects() -> None:
    async def scene(client: Client) -> None:
        asking = asyncio.create_task(client.ask("slowly"))
        await wait_until_in_flight(client, 1)
        asking.cancel()
        await wait_until_in_flight(client, 0)

    run_with_simulator(SimulatorConfig(latency_ms=600_000), scene)


def test_a_reset_clears_all_counters() -> None:
    async def scene(client: Client) -> None:
        await client.ask("question")
        assert (await client.post("/counters/reset", {})).body["requests"] == 0
        await client.ask("question")
        assert (await client.counters())["repeated_bodies"] == 0

    run_with_simulator(SimulatorConfig(), scene)


def test_the_page_shows_the_counters_and_escapes_model_names() -> None:
    async def scene(client: Client) -> None:
        await client.ask("question", "<script>alert(1)</script>")
        page = await client.get("/")
        assert page.headers["Content-Type"].startswith("text/html")
        assert '<meta http-equiv="refresh"' in page.text
        assert "peak in flight" in page.text
        assert "<script>" not in page.text
        assert "&lt;script&gt;" in page.text

    run_with_simulator(SimulatorConfig(), scene)
