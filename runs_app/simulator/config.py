"""The settings of the simulated provider."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

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
