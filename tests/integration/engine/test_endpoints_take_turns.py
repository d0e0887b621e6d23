"""A worker's cycle visits its endpoints in random order, so none of them always waits for the others."""

from collections import Counter

from runs_app.engine import worker_cycle
from runs_app.engine.admission import ClaimLimit, WorkerCapacity

ENDPOINTS = (1, 2, 3)


def test_each_endpoint_is_first_in_some_cycles(monkeypatch):
    visited = []
    monkeypatch.setattr(worker_cycle, "_run_endpoint_cycle", lambda key, *rest: (visited.append(key) or 0, []))
    limits = dict.fromkeys(ENDPOINTS, ClaimLimit(claims=1, level=1))
    monkeypatch.setattr(worker_cycle, "compute_claim_limits", lambda *arguments: limits)
    monkeypatch.setattr(worker_cycle, "wait_for_disk", lambda: None)
    first = Counter()
    for _ in range(100):
        visited.clear()
        worker_cycle.run_cycle([], 1, WorkerCapacity(3))
        assert sorted(visited) == sorted(ENDPOINTS)
        first[visited[0]] += 1
    assert set(first) == set(ENDPOINTS)
