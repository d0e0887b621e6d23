"""The options of an experiment, each declared once. Pure.

The column of the model, the forms, the experiment file and `experiment set` follow from these declarations. So do the
facts on pages, the report's table of settings and the table in docs/experiment-file.md.

To add an option, declare it here, add its column with `describe_column` in `runs_app/models/experiments.py`, run
`makemigrations`, and use it in the engine.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any

from evalsite.lib.bound import Bound
from evalsite.lib.text.number_format import format_count, format_money
from runs_app.stopping.rules import MIN_FAILURES

DESIGN, EXECUTION, BUDGET = GROUPS = ("design", "execution", "budget")
DAY_S = 86_400
USD = Bound(0, 10_000_000, "US dollars")
CALLS = Bound(1, 100_000)
SHARE = Bound(0, 1)


class OnEmpty(StrEnum):
    KEEP = "keep"
    RERUN = "rerun"
    SKIP = "skip"


class OnUnreadable(StrEnum):
    KEEP = "keep"
    RERUN = "rerun"


class BudgetPolicy(StrEnum):
    DEV = "dev"
    FULL = "full"


@dataclass(frozen=True, slots=True, kw_only=True)
class ExperimentOption:
    """One option of an experiment.

    - `name` is the column. `key` is the key in an experiment file: `name`, or `budget.KEY` in the group BUDGET.
    - `kind` is the type of the value: bool, int, float, Decimal, or str with `choices` (value, label).
    - `default` None means that the option can be unset; `unset` says what that means.
    - `longest` is the number of characters that a str without `choices` may have.
    - `label` is the label in forms, `title` the one in facts and reports. `help` is one sentence for forms, `docs` the
      text of docs/experiment-file.md.
    - `changes` is whether it can change after the launch; `launched_help` is then the help text. `verb_option` is the
      option of `experiment set`, `metavar` its value.
    - `is_in_forms` is False for an option that only files set. `beside` places it beside the previous option.
    - `fact` is the text of a value, with {} for the number; `states` are the texts of yes and no.
    - `is_fact` and `is_reported` are whether the facts on pages and the report's table show it.
    """

    name: str
    group: str
    kind: type
    default: Any
    label: str
    help: str
    docs: str
    bound: Bound | None = None
    choices: tuple[tuple[str, str], ...] = ()
    longest: int = 0
    short_key: str = ""
    title: str = ""
    unset: str = "none"
    fact: str = "{}"
    states: tuple[str, str] = ("yes", "no")
    changes: bool = False
    launched_help: str = ""
    verb_option: str = ""
    metavar: str = "N"
    is_in_forms: bool = True
    beside: bool = False
    is_fact: bool = True
    is_reported: bool = True

    @property
    def key(self) -> str:
        return f"budget.{self.short_key or self.name}" if self.group == BUDGET else self.name

    @property
    def may_be_unset(self) -> bool:
        return self.default is None

    @property
    def flag(self) -> str:
        """Return the option of `experiment set`, without its dashes."""
        return self.verb_option or self.name.replace("_", "-")

    @property
    def aspect(self) -> str:
        """Return the name of its changes in the history."""
        return self.label[:1].lower() + self.label[1:]

    @property
    def heading(self) -> str:
        return self.title or self.label

    def describe(self, value: Any) -> str:
        """Return a value as the facts and the report show it."""
        if value is None:
            return self.unset
        if self.kind is bool:
            return self.states[not value]
        if self.choices:
            return dict(self.choices).get(value, str(value))
        if self.kind is str:
            return str(value)
        number = format_money(value) if self.kind is Decimal else format_count(value)
        return self.fact.format(number)


OPTIONS = (
    ExperimentOption(
        name="samples",
        group=DESIGN,
        kind=int,
        default=1,
        bound=Bound(1, 10_000),
        label="Samples",
        help="Repetitions of each cell",
        docs="repetitions of a cell, `sample_idx` 0, 1, ...",
        fact="{} per cell",
        changes=True,
        launched_help="Can only increase. The next launch adds the missing trials",
    ),
    ExperimentOption(
        name="primary_measure",
        group=DESIGN,
        kind=str,
        default=None,
        longest=200,
        label="Primary measure",
        help="Name of the dimension, rule or judge that every page shows first. Empty: the first of the design",
        docs="the measure that decides: a dimension, a rule such as `exact_match`, a judge, or the people of a queue "
        "(`people-QUEUE`). Pages, files and reports show it first. Without it, they show the first dimension, rule or "
        "judge first",
        unset="the first of the design",
        changes=True,
        metavar="NAME",
    ),
    ExperimentOption(
        name="max_concurrency",
        group=EXECUTION,
        kind=int,
        default=32,
        bound=CALLS,
        label="Calls in flight",
        help="Calls in flight per condition",
        docs="calls in flight per run; can be changed while it runs",
        fact="{} per condition",
    ),
    ExperimentOption(
        name="priority",
        group=EXECUTION,
        kind=int,
        default=0,
        bound=Bound(-9, 9),
        label="Priority",
        help="-9 to 9. Higher priorities use a shared endpoint first",
        docs="at a shared endpoint, the highest comes first",
        changes=True,
        beside=True,
        is_reported=False,
    ),
    ExperimentOption(
        name="request_timeout_s",
        group=EXECUTION,
        kind=float,
        default=60,
        bound=Bound(0.1, 3_600, "seconds"),
        label="Time-out",
        help="Seconds per call",
        docs="time-out of a call, in seconds",
        fact="{} s per call",
        changes=True,
        launched_help="Seconds per call, from the next calls on",
        verb_option="timeout",
        metavar="SECONDS",
        beside=True,
    ),
    ExperimentOption(
        name="max_attempts",
        group=EXECUTION,
        kind=int,
        default=3,
        bound=Bound(1, 20),
        label="Attempts",
        help="Attempts per trial before it counts as failed",
        docs="attempts per trial, counted when it is claimed",
        fact="{} per trial",
        changes=True,
        launched_help="Attempts per trial. Failed trials need a retry",
        verb_option="attempts",
        beside=True,
    ),
    ExperimentOption(
        name="backoff_s",
        group=EXECUTION,
        kind=float,
        default=1,
        bound=Bound(0.1, 3_600, "seconds"),
        label="First retry wait",
        help="Seconds before the first retry. Each further wait is twice as long",
        docs="seconds before the first retry of a failed call; each further wait doubles",
        fact="{} s, doubled for each further retry",
        changes=True,
        verb_option="backoff",
        metavar="SECONDS",
    ),
    ExperimentOption(
        name="max_backoff_s",
        group=EXECUTION,
        kind=float,
        default=60,
        bound=Bound(0.1, 3_600, "seconds"),
        label="Longest retry wait",
        help="Seconds. A provider's Retry-After can extend it",
        docs="longest wait, in seconds; a provider's Retry-After may exceed it",
        fact="{} s",
        changes=True,
        verb_option="max-backoff",
        metavar="SECONDS",
        beside=True,
    ),
    ExperimentOption(
        name="stop_failure_rate",
        group=EXECUTION,
        kind=float,
        default=0.05,
        bound=SHARE,
        label="Failure rate that stops a run",
        help="Share of permanently failed attempts, 0 to 1. A run stops after at least "
        f"{MIN_FAILURES} failures if the share is above this value with 95 % confidence",
        docs="the limit of the share of attempts that fail permanently. A run stops itself if the lower bound of the "
        "share's 95 % Wilson interval is above the limit, after at least five permanent failures",
        changes=True,
        launched_help="Share of permanently failed attempts, 0 to 1. A run stops after at least "
        f"{MIN_FAILURES} failures if the share is above this value with 95 % confidence. Counted from the last start",
        metavar="SHARE",
        is_reported=False,
    ),
    ExperimentOption(
        name="stop_after_attempts",
        group=EXECUTION,
        kind=int,
        default=20,
        bound=Bound(1, 1_000_000),
        label="Minimum attempts before a stop",
        help="Runs with fewer attempts do not stop",
        docs="a run with fewer attempts does not stop itself",
        beside=True,
        is_reported=False,
    ),
    ExperimentOption(
        name="on_empty",
        group=EXECUTION,
        kind=str,
        default="keep",
        choices=(
            ("keep", "Keep and grade"),
            ("rerun", "Ask again, as after a transient error"),
            ("skip", "Keep, do not grade"),
        ),
        label="Empty answers",
        help="How to treat trials with a blank answer",
        docs="treatment of empty answers. `keep` stores them. `rerun` calls again within `max_attempts` and keeps the "
        "last answer. `skip` stores them and excludes them from grading",
        changes=True,
    ),
    ExperimentOption(
        name="on_unreadable",
        group=EXECUTION,
        kind=str,
        default="keep",
        choices=(
            ("keep", "Keep it, as an answer without a rating"),
            ("rerun", "Ask again, as after a transient error"),
        ),
        label="Unreadable answers",
        help="How to treat trials whose answer has no readable rating",
        docs="treatment of answers without a readable rating: `keep` or `rerun`, as above. Refusals are not called "
        "again; empty answers follow `on_empty`",
        changes=True,
        beside=True,
    ),
    ExperimentOption(
        name="cache",
        group=EXECUTION,
        kind=bool,
        default=True,
        label="Use the response cache",
        title="Response cache",
        help="Reuse cached answers to identical requests",
        docs="reuse the stored answer to an equal request and epoch at no cost ([response "
        "cache](engine.md#the-response-cache)); never for waves after the first",
        states=("used", "off"),
    ),
    ExperimentOption(
        name="cache_buster",
        group=EXECUTION,
        kind=bool,
        default=False,
        label="Add a unique suffix to bypass provider caches",
        title="Request suffix",
        help="Unique suffix of each request, which bypasses provider caches",
        docs="end the user turn with a salt from (run, item, dimension, repetition), so that no provider's cache can "
        "answer",
        states=("unique for each request", "none"),
    ),
    ExperimentOption(
        name="batch",
        group=EXECUTION,
        kind=bool,
        default=False,
        label="Use the batch API (half price, up to 24 h)",
        title="Batch API",
        help="Only for endpoints with a batch API",
        docs="use the [batch API](engine.md#batches) of endpoints that have one: half price, within a day. Other "
        "endpoints get single calls",
        states=("used where the endpoint has one", "off"),
    ),
    ExperimentOption(
        name="sequential",
        group=EXECUTION,
        kind=bool,
        default=False,
        label="Run conditions sequentially",
        title="Conditions",
        help="Otherwise conditions run in parallel",
        docs="run conditions sequentially",
        states=("run sequentially", "run in parallel"),
    ),
    ExperimentOption(
        name="shuffle",
        group=EXECUTION,
        kind=int,
        default=None,
        bound=Bound(0, 2_147_483_647),
        label="Shuffle the order (seed)",
        title="Items",
        help="Seed of a random order of execution. Without it, items run in their order",
        docs="a seed. Workers claim the items and repetitions of a condition in the random order of this seed, so that "
        "slow or long cases are spread over the run. Without it, items run in their order. It changes neither requests "
        "nor cached answers",
        fact="in random order, seed {}",
        unset="in their order",
    ),
    ExperimentOption(
        name="lease_s",
        group=EXECUTION,
        kind=float,
        default=120,
        bound=Bound(1, DAY_S, "seconds"),
        label="Lease",
        help="Seconds after which the claims of a silent worker expire",
        docs="seconds until the claims of a silent worker are released",
        fact="{} s",
        is_in_forms=False,
        is_reported=False,
    ),
    ExperimentOption(
        name="max_usd",
        group=BUDGET,
        kind=Decimal,
        default=None,
        bound=USD,
        label="Budget",
        help="US dollars; hard limit",
        docs="hard limit in US dollars. It requires all prices and output limits",
        changes=True,
        launched_help="US dollars; applies from the next call",
        verb_option="budget",
        metavar="USD",
    ),
    ExperimentOption(
        name="confirm_above_usd",
        group=BUDGET,
        kind=Decimal,
        default=None,
        bound=USD,
        label="Confirm above",
        help="US dollars; a launch with a higher maximum cost needs confirmation",
        docs="a launch with a higher maximum cost needs confirmation",
        unset="–",
        changes=True,
        verb_option="confirm-above",
        metavar="USD",
        is_reported=False,
    ),
    ExperimentOption(
        name="budget_policy",
        group=BUDGET,
        short_key="policy",
        kind=str,
        default="full",
        choices=(
            ("dev", "Dev: only the first items, without the batch API"),
            ("full", "Full: every item and sample"),
        ),
        label="Launch policy",
        help="The part of the design that a launch runs",
        docs="the share of the design that a launch runs: `full`, or `dev` for the first items only ([budget "
        "policies](journeys.md#budget-policies))",
        changes=True,
        launched_help="The part of the design that the next launch runs",
        verb_option="policy",
        is_reported=False,
    ),
    ExperimentOption(
        name="dev_items",
        group=BUDGET,
        kind=int,
        default=2,
        bound=Bound(1, 1_000_000),
        label="Dev items",
        help="Number of first items in a dev launch",
        docs="number of items that `dev` runs",
        changes=True,
        beside=True,
        is_fact=False,
        is_reported=False,
    ),
    ExperimentOption(
        name="dev_samples",
        group=BUDGET,
        kind=int,
        default=None,
        bound=Bound(1, 10_000),
        label="Dev samples",
        unset="as in the design",
        help="Maximum samples in a dev launch. Empty: as in the design",
        docs="maximum number of samples that `dev` runs; by default those of the design",
        changes=True,
        beside=True,
        is_fact=False,
        is_reported=False,
    ),
)
NAMES = tuple(option.name for option in OPTIONS)
_BY_NAME = {option.name: option for option in OPTIONS}


def get_option(name: str) -> ExperimentOption:
    return _BY_NAME[name]


def list_options(*, group: str | None = None) -> list[ExperimentOption]:
    """Return the options of a group, or those outside the group BUDGET: the keys at the top of a file."""
    return [option for option in OPTIONS if (option.group == group if group else option.group != BUDGET)]


def iterate_rows(group: str) -> Iterator[list[str]]:
    """Yield the names of the options of a group by row, as forms show them."""
    row: list[str] = []
    for option in list_options(group=group):
        if row and not option.beside:
            yield row
            row = []
        row.append(option.name)
    yield row


def write_documentation(group: str) -> str:
    """Return the list of docs/experiment-file.md for a group."""
    entries = []
    for option in list_options(group=group):
        facts = ["optional" if option.default is None else f"default `{_format_value(option.default)}`"]
        if option.bound:
            facts.append(str(option.bound).removeprefix("between ").replace(" and ", " to "))
        facts += ["can change after the launch"] if option.changes else []
        entry = f"- `{option.key}` ({'; '.join(facts)}): {option.docs}"
        entries.append(textwrap.fill(entry, 120, subsequent_indent="  ", break_on_hyphens=False))
    return "\n".join(entries)


def _format_value(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
