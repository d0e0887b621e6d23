"""The fault and the latency of a request, as pure functions of the seed, the request and its repetition."""

import math
from collections.abc import Mapping

from runs_app.simulator.config import SimulatorConfig
from runs_app.simulator.seeded_random import draw_normal, draw_uniforms

# By status: (type, code) of OpenAI's error object.
ERROR_TYPES: dict[int, tuple[str, str | None]] = {
    400: ("invalid_request_error", None),
    401: ("invalid_request_error", "invalid_api_key"),
    403: ("permission_error", "forbidden"),
    404: ("invalid_request_error", "not_found"),
    422: ("invalid_request_error", "unprocessable_entity"),
    429: ("rate_limit_error", "rate_limit_exceeded"),
    500: ("server_error", "internal_error"),
    503: ("server_error", "overloaded"),
}


def build_error(status: int, message: str, code: str | None = None) -> dict[str, object]:
    """Return an error body in OpenAI's format."""
    kind, default_code = ERROR_TYPES.get(status, ("server_error" if status >= 500 else "invalid_request_error", None))
    return {"error": {"message": message, "type": kind, "param": None, "code": code or default_code}}


def choose_fault(faults: Mapping[str, float], seed: int, fingerprint: int, repetition: int) -> str | None:
    """Return the fault of this repetition of the request with this fingerprint, or None."""
    if not faults:
        return None
    position = draw_uniforms("fault", seed, fingerprint, repetition)[0]
    for name, rate in faults.items():
        if position < rate:
            return name
        position -= rate
    return None


def draw_latency(config: SimulatorConfig, fault: str | None, fingerprint: int, repetition: int) -> float:
    """Return the seconds until the response. A 429 has no delay, as from a real gateway."""
    if fault == "429":
        return 0.0
    if fault == "slow" and config.slow_s is not None:
        return config.slow_s
    latency = config.latency_ms / 1000
    if config.latency_sigma:
        latency *= math.exp(config.latency_sigma * draw_normal("latency", config.seed, fingerprint, repetition))
    return latency * 50 if fault == "slow" else latency
