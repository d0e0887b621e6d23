"""The settings of the simulated provider, and its command line options, for `simulate_provider` and `python -m`."""

import argparse
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

# Faults other than error statuses, with their effects.
NAMED_FAULTS: dict[str, str] = {
    "slow": "answers late: after slow_s seconds, or after 50 times the ordinary latency",
    "cut": "closes the connection in the middle of the body",
    "malformed": "status 200 with a body that is not JSON",
    "no_choices": "status 200 with an empty list of choices",
    "content_filter": "status 400 with the code of a content policy violation",
    "refusal": "status 200 with message.refusal set and no content",
    "truncated": "status 200 with finish_reason length and half of the answer",
    "empty": "status 200 with an empty answer",
}

# Faults of whole batches, with their effects. The calls of a batch also have the faults of calls.
BATCH_FAULTS: dict[str, str] = {
    "lost_upload": "keeps the file and hangs up without an answer",
    "lost_submission": "creates the batch and hangs up without an answer",
    "invalid": "fails the batch as invalid, and makes none of its calls",
    "full": "fails the batch for lack of capacity, and makes none of its calls",
    "expired": "makes half of the calls before the batch expires",
    "missing": "omits every other call from the results",
}
# Waits in seconds: before a batch is created, before its response, until it has ended, before each result line, in the
# middle of the result lines.
BATCH_WAITS = ("create", "answer", "done", "line", "half")

# The faults that share --error-rate: errors after which a client should retry.
TRANSIENT_FAULTS = ("429", "500", "503", "cut", "malformed")

# The ways in which a judge gives verdicts.
JUDGES: dict[str, str] = {
    "plain": "in the requested format",
    "assorted": "in many formats, readable and unreadable",
    "obedient": "with the score that text outside the fenced answers commands",
}


class ConfigError(ValueError):
    """An invalid setting or input file of the simulated provider. The message names it."""


@dataclass(frozen=True, slots=True)
class SimulatorConfig:
    """The settings of the simulated provider. Rates are probabilities. Names of times include the unit."""

    host: str = "127.0.0.1"
    port: int = 0  # 0: any free port
    served_name: str | None = None  # the model name in responses; None repeats the requested name
    latency_ms: float = 0.0  # fixed, or the median when latency_sigma is above 0
    latency_sigma: float = 0.0  # standard deviation of the logarithm of the latency
    event_ms: float = 0.0  # the pause between two events of a stream
    slow_s: float | None = None
    faults: Mapping[str, float] = field(default_factory=dict)
    retry_after_s: float | None = None  # sent as Retry-After with every 429
    seed: int = 0
    key_env: str | None = None  # the environment variable that holds the only accepted key
    max_in_flight: int | None = None
    rpm: int | None = None
    json_schema: bool = True  # False: a request with response_format json_schema gets a 400, as on some servers
    skills: Mapping[str, float] = field(default_factory=dict)
    batch_faults: Mapping[str, float] = field(default_factory=dict)
    batch_waits: Mapping[str, float] = field(default_factory=dict)
    answers: tuple[Path, ...] = ()
    profiles: tuple[Path, ...] = ()  # skill profiles of models; later files override earlier ones
    replays: tuple[Path, ...] = ()
    judge: str = "plain"  # the way of giving verdicts: one of JUDGES
    stalled: tuple[str, ...] = ()  # models that never answer until they are unloaded, as on a local server

    def __post_init__(self) -> None:
        check_faults(self.faults)
        check_batches(self.batch_faults, self.batch_waits)
        for name in ("latency_ms", "latency_sigma", "event_ms", "slow_s", "retry_after_s"):
            value = getattr(self, name)
            is_optional = name in ("slow_s", "retry_after_s")
            if (value is None and not is_optional) or (value is not None and not 0 <= value < math.inf):
                raise ConfigError(f"{name}: must be a number of 0 or more, not {value}")
        for name in ("max_in_flight", "rpm"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"{name}: must be 1 or more, not {value}")
        if self.judge not in JUDGES:
            raise ConfigError(f"judge: must be one of {', '.join(JUDGES)}, not {self.judge}")
        for model, skill in self.skills.items():
            if not 0.0 <= skill <= 1.0:
                raise ConfigError(f"skill of {model}: must be between 0 and 1, not {skill}")

    def build_arguments(self) -> list[str]:
        """Return a command line that `build_config` converts back to the same configuration."""
        values: dict[str, object] = {
            "--served-model": self.served_name,
            "--require-key": self.key_env,
            "--max-in-flight": self.max_in_flight,
            "--rpm": self.rpm,
            "--slow-s": self.slow_s,
            "--retry-after": self.retry_after_s,
            "--errors": _format_pairs(self.faults),
            "--batch-faults": _format_pairs(self.batch_faults),
            "--batch-waits": _format_pairs(self.batch_waits),
            "--host": self.host,
            "--port": self.port,
            "--seed": self.seed,
            "--latency-ms": self.latency_ms,
            "--latency-sigma": self.latency_sigma,
            "--event-ms": self.event_ms,
            "--judge": self.judge,
        }
        arguments = [f"{option}={value}" for option, value in values.items() if value is not None]
        arguments += [f"--skill={model}={skill!r}" for model, skill in self.skills.items()]
        arguments += [f"--answers={path}" for path in self.answers]
        arguments += [f"--profile={path}" for path in self.profiles]
        arguments += [f"--replay={path}" for path in self.replays]
        arguments += [f"--stall={model}" for model in self.stalled]
        return arguments if self.json_schema else [*arguments, "--no-json-schema"]


def check_faults(faults: Mapping[str, float]) -> None:
    """Raise ConfigError unless each fault is a known name or an error status and the rates sum to at most 1."""
    for name, rate in faults.items():
        is_status = name.isdigit() and 400 <= int(name) <= 599
        if not is_status and name not in NAMED_FAULTS:
            raise ConfigError(f"fault {name!r}: not a status from 400 to 599 nor one of {', '.join(NAMED_FAULTS)}")
        if not 0.0 <= rate <= 1.0:
            raise ConfigError(f"fault {name}: the rate must be between 0 and 1, not {rate}")
    if sum(faults.values()) > 1.0 + 1e-9:
        raise ConfigError(f"the rates of the faults sum to {sum(faults.values()):g}, more than 1")


def check_batches(faults: Mapping[str, float], waits: Mapping[str, float]) -> None:
    """Raise ConfigError unless these are batch faults with rates up to 1, and batch waits of 0 seconds or more."""
    for name, rate in faults.items():
        if name not in BATCH_FAULTS or not 0.0 <= rate <= 1.0:
            raise ConfigError(f"batch fault {name}={rate}: not a rate of one of {', '.join(BATCH_FAULTS)}")
    for name, seconds in waits.items():
        if name not in BATCH_WAITS or not 0.0 <= seconds < math.inf:
            raise ConfigError(f"batch wait {name}={seconds}: not seconds of one of {', '.join(BATCH_WAITS)}")


def parse_pairs(text: str, option: str) -> dict[str, float]:
    """Parse `"429=0.05,500=0.02"` to a mapping. Raise ConfigError with the option and the wrong part."""
    pairs: dict[str, float] = {}
    for part in filter(None, (piece.strip() for piece in text.split(","))):
        name, separator, value = part.rpartition("=")
        try:
            pairs[name.strip()] = float(value)
        except ValueError:
            separator = ""
        if not separator or not name.strip():
            raise ConfigError(f"{option}: {part!r} is not NAME=NUMBER")
    return pairs


def spread_error_rate(error_rate: float) -> dict[str, float]:
    """Spread one overall error rate equally over the transient faults."""
    return {name: error_rate / len(TRANSIENT_FAULTS) for name in TRANSIENT_FAULTS} if error_rate else {}


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


def _format_pairs(numbers: Mapping[str, float]) -> str | None:
    return ",".join(f"{name}={number!r}" for name, number in numbers.items()) or None
