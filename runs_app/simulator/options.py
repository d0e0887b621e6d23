"""The command line options of the simulated provider, for the management command and `python -m`."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runs_app.simulator.config import (
    BATCH_FAULTS,
    BATCH_WAITS,
    JUDGES,
    NAMED_FAULTS,
    ConfigError,
    SimulatorConfig,
    parse_pairs,
    spread_error_rate,
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add every option to `parser`."""
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: loopback only)")
    parser.add_argument("--port", type=int, default=0, help="0, the default, chooses a free port")
    parser.add_argument("--served-model", metavar="NAME", help="answer under this model name")
    parser.add_argument("--require-key", metavar="KEY_ENV", help="require the API key in this environment variable")
    parser.add_argument("--max-in-flight", type=int, metavar="N", help="answer 429 beyond N requests at a time")
    parser.add_argument("--rpm", type=int, metavar="N", help="answer 429 beyond N requests per minute")
    parser.add_argument("--seed", type=int, default=0, help="seed of faults, latencies and simulated answers")
    parser.add_argument(
        "--latency-ms", type=float, default=0.0, help="latency of an answer; the median with --latency-sigma"
    )
    parser.add_argument("--latency-sigma", type=float, default=0.0, help="log-normal spread of the latency")
    parser.add_argument("--event-ms", type=float, default=0.0, help="pause between two events of a streamed answer")
    parser.add_argument("--slow-s", type=float, help="seconds of a `slow` answer (default 50 x the latency)")
    parser.add_argument(
        "--error-rate", type=float, default=0.0, help="rate of errors: 429, 500, 503, cut and malformed"
    )
    parser.add_argument(
        "--errors",
        default="",
        metavar="KIND=RATE,...",
        help=f"a kind is an error status or one of {', '.join(NAMED_FAULTS)}",
    )
    for option, kinds in (("--batch-faults", BATCH_FAULTS), ("--batch-waits", BATCH_WAITS)):
        parser.add_argument(option, default="", metavar="KIND=NUMBER,...", help=f"for batches: {', '.join(kinds)}")
    parser.add_argument("--retry-after", type=float, metavar="S", help="seconds to send with every 429")
    parser.add_argument("--no-json-schema", action="store_true", help="refuse response_format json_schema with a 400")
    parser.add_argument(
        "--skill", action="append", default=[], metavar="MODEL=P", help="probability of a right answer; repeatable"
    )
    parser.add_argument(
        "--answers", action="append", default=[], type=Path, metavar="FILE", help="JSONL of targets and norms"
    )
    parser.add_argument(
        "--profile", action="append", default=[], type=Path, metavar="FILE", help="JSON of skill profiles by model"
    )
    parser.add_argument(
        "--replay", action="append", default=[], type=Path, metavar="FILE", help="JSONL of recorded answers"
    )
    parser.add_argument("--judge", choices=JUDGES, default="plain", help="style of verdicts")
    parser.add_argument(
        "--stall",
        action="append",
        default=[],
        metavar="MODEL",
        help="the model stalls until POST /api/generate unloads it; repeatable",
    )


def build_config(options: Mapping[str, Any]) -> SimulatorConfig:
    """Return the configuration for parsed options. Raise ConfigError with the wrong option."""
    if not 0.0 <= options["error_rate"] <= 1.0:
        raise ConfigError(f"--error-rate: must be between 0 and 1, not {options['error_rate']}")
    return SimulatorConfig(
        host=options["host"],
        port=options["port"],
        served_name=options["served_model"],
        latency_ms=options["latency_ms"],
        latency_sigma=options["latency_sigma"],
        event_ms=options["event_ms"],
        slow_s=options["slow_s"],
        faults={**spread_error_rate(options["error_rate"]), **parse_pairs(options["errors"], "--errors")},
        batch_faults=parse_pairs(options["batch_faults"], "--batch-faults"),
        batch_waits=parse_pairs(options["batch_waits"], "--batch-waits"),
        retry_after_s=options["retry_after"],
        seed=options["seed"],
        key_env=options["require_key"],
        max_in_flight=options["max_in_flight"],
        rpm=options["rpm"],
        json_schema=not options["no_json_schema"],
        skills={name: rate for skill in options["skill"] for name, rate in parse_pairs(skill, "--skill").items()},
        answers=tuple(options["answers"]),
        profiles=tuple(options["profile"]),
        replays=tuple(options["replay"]),
        judge=options["judge"],
        stalled=tuple(options["stall"]),
    )


def build_arguments(config: SimulatorConfig) -> list[str]:
    """Return a command line that `build_config` converts back to the same configuration."""
    values: dict[str, object] = {
        "--served-model": config.served_name,
        "--require-key": config.key_env,
        "--max-in-flight": config.max_in_flight,
        "--rpm": config.rpm,
        "--slow-s": config.slow_s,
        "--retry-after": config.retry_after_s,
        "--errors": _format_pairs(config.faults),
        "--batch-faults": _format_pairs(config.batch_faults),
        "--batch-waits": _format_pairs(config.batch_waits),
        "--host": config.host,
        "--port": config.port,
        "--seed": config.seed,
        "--latency-ms": config.latency_ms,
        "--latency-sigma": config.latency_sigma,
        "--event-ms": config.event_ms,
        "--judge": config.judge,
    }
    arguments = [f"{option}={value}" for option, value in values.items() if value is not None]
    arguments += [f"--skill={model}={skill!r}" for model, skill in config.skills.items()]
    arguments += [f"--answers={path}" for path in config.answers]
    arguments += [f"--profile={path}" for path in config.profiles]
    arguments += [f"--replay={path}" for path in config.replays]
    arguments += [f"--stall={model}" for model in config.stalled]
    return arguments if config.json_schema else [*arguments, "--no-json-schema"]


def _format_pairs(numbers: Mapping[str, float]) -> str | None:
    return ",".join(f"{name}={number!r}" for name, number in numbers.items()) or None
