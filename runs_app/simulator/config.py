"""What may be set on the simulated provider."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

# Behaviours that are not an HTTP status, with what each of them does.
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

# What may befall a batch, by rate; its calls meet the faults of calls besides.
BATCH_FAULTS: dict[str, str] = {
    "lost_upload": "keeps the file and hangs up without an answer",
    "lost_submission": "makes the batch and hangs up without an answer",
    "invalid": "finds the batch invalid, and makes none of its calls",
    "full": "has no room for the batch now, and makes none of its calls",
    "expired": "makes half of the calls before the batch expires",
    "missing": "leaves every other call out of the results",
}
# Seconds: before a batch is made, before its making is answered, until it has ended, before each line of its results.
BATCH_WAITS = ("create", "answer", "done", "line")

# What --error-rate is spread over: the errors that a client is expected to live through by trying again.
TRANSIENT_FAULTS = ("429", "500", "503", "cut", "malformed")

# How a judge's verdicts are given, with what each way does.
JUDGES: dict[str, str] = {
    "plain": "as asked for",
    "assorted": "in many shapes, good and bad",
    "obedient": "with the score that any text tells it to give, but for what it was told is data",
}


class ConfigError(ValueError):
    """A setting or an input file of the simulated provider that cannot be used; the message names it."""


@dataclass(frozen=True, slots=True)
class SimulatorConfig:
    """Every setting of the simulated provider. Rates are probabilities, times carry their unit in the name."""

    host: str = "127.0.0.1"
    port: int = 0  # 0: any free port
    served_name: str | None = None  # answer under this model name; None echoes the one asked for
    latency_ms: float = 0.0  # fixed, or the median when latency_sigma is above 0
    latency_sigma: float = 0.0  # standard deviation of the logarithm of the latency
    slow_s: float | None = None
    faults: Mapping[str, float] = field(default_factory=dict)
    retry_after_s: float | None = None  # sent as Retry-After with every 429
    seed: int = 0
    key_env: str | None = None  # the environment variable that holds the one key that is let in
    max_in_flight: int | None = None
    rpm: int | None = None
    json_schema: bool = True  # False: response_format json_schema is refused with a 400, as some servers do
    skills: Mapping[str, float] = field(default_factory=dict)
    batch_faults: Mapping[str, float] = field(default_factory=dict)
    batch_waits: Mapping[str, float] = field(default_factory=dict)
    answers: tuple[Path, ...] = ()
    replays: tuple[Path, ...] = ()
    judge: str = "plain"  # how verdicts are given: one of JUDGES
    stalled: tuple[str, ...] = ()  # models that answer nothing until they are unloaded, as on a local server

    def __post_init__(self) -> None:
        check_faults(self.faults)
        check_batches(self.batch_faults, self.batch_waits)
        for name in ("latency_ms", "latency_sigma", "slow_s", "retry_after_s"):
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


def check_faults(faults: Mapping[str, float]) -> None:
    """Raise ConfigError unless every fault is a known word or an error status and the rates sum to at most 1."""
    for name, rate in faults.items():
        is_status = name.isdigit() and 400 <= int(name) <= 599
        if not is_status and name not in NAMED_FAULTS:
            raise ConfigError(f"fault {name!r}: not a status from 400 to 599 nor one of {', '.join(NAMED_FAULTS)}")
        if not 0.0 <= rate <= 1.0:
            raise ConfigError(f"fault {name}: the rate must be between 0 and 1, not {rate}")
    if sum(faults.values()) > 1.0 + 1e-9:
        raise ConfigError(f"the rates of the faults sum to {sum(faults.values()):g}, more than 1")


def check_batches(faults: Mapping[str, float], waits: Mapping[str, float]) -> None:
    """Raise ConfigError unless these are faults and waits of batches, rates up to 1, and times of 0 or more."""
    for name, rate in faults.items():
        if name not in BATCH_FAULTS or not 0.0 <= rate <= 1.0:
            raise ConfigError(f"batch fault {name}={rate}: not a rate of one of {', '.join(BATCH_FAULTS)}")
    for name, seconds in waits.items():
        if name not in BATCH_WAITS or not 0.0 <= seconds < math.inf:
            raise ConfigError(f"batch wait {name}={seconds}: not seconds of one of {', '.join(BATCH_WAITS)}")


def parse_pairs(text: str, option: str) -> dict[str, float]:
    """`"429=0.05,500=0.02"` as a mapping; ConfigError names the option and the part that is wrong."""
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


def spread(error_rate: float) -> dict[str, float]:
    """One overall error rate, in equal parts over the transient faults."""
    return {name: error_rate / len(TRANSIENT_FAULTS) for name in TRANSIENT_FAULTS} if error_rate else {}
