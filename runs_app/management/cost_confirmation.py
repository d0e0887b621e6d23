"""The cost estimate and the confirmation of a command that starts work."""

from __future__ import annotations

from django.core.management.base import CommandError

from evalsite.lib.ops.commands import OVER_BUDGET, OutputCommand
from evalsite.lib.text.number_format import format_count, format_money
from runs_app.models import Experiment
from runs_app.pricing.estimated_costs import Estimate, Price


def print_estimate(command: OutputCommand, found: Estimate) -> None:
    likely = f", about {format_count(found.likely)} if every accuracy is as likely" if found.likely is not None else ""
    command.say(f"{format_count(found.trials)} trials, {format_count(found.to_do)} to do{likely}")
    if found.policy_text:
        command.say(f"policy dev: {found.policy_text}")
    command.say(f"cost: at most {format_money(found.ceiling_usd)}, expected {format_money(found.expected_usd)}")
    if found.foreseen:
        command.say(
            f"      {format_count(found.foreseen)} were asked before and cost nothing, if the cache still has them"
        )
    if found.full_usd is not None and found.full_usd != found.expected_usd:
        command.say(f"      all answers anew would be expected to cost {format_money(found.full_usd)}")
    if found.verdicts:
        command.say(f"      with {format_count(found.verdicts)} verdicts of its judges, once the answers are in")
    if found.batched:
        saved = format_money(found.batches_save_usd)
        command.say(f"      {found.batched} trials go out in batches, which saves about {saved}; within a day")
    command.say(f"      {found.coverage:.0%} of it is expected from calls that were made")
    for price in found.prices:
        each = _price_text(price)
        source = ", ".join(str(part) for part in (price.source, price.as_of) if part)
        command.say(f"      {price.model}: {each}" + (f" ({source})" if source else ""))
        command.say(f"        tokens: {price.counted}")
    for sentence in found.problems:
        command.stderr.write(f"to mend before a launch: {sentence}", command.style.ERROR)
    for sentence in found.warnings:
        command.stderr.write(f"warning: {sentence}", command.style.WARNING)


def confirm_cost(
    command: OutputCommand, experiment: Experiment, found: Estimate, yes: bool, what: str = "Launch"
) -> None:
    """Exit with code 4 or 3 unless the user accepts the cost.

    The code is 4 if the expected cost exceeds the rest of the budget.
    It is 3 if the ceiling needs a confirmation that was not given.
    """
    likely = found.expected_usd if found.expected_usd is not None else found.ceiling_usd
    if experiment.max_usd is not None and likely is not None and not yes:
        left = experiment.max_usd - experiment.spent_usd
        if likely > left:
            raise CommandError(
                f"budget: {format_money(likely)} are expected and {format_money(left)} are left; raise max_usd, or "
                f"{what.lower()} with --yes and let the budget end it. Nothing was launched",
                returncode=OVER_BUDGET,
            )
    if experiment.needs_confirmation(found.ceiling_usd):
        limit = format_money(experiment.confirm_above_usd)
        command.confirm(f"This may cost {format_money(found.ceiling_usd)}, more than {limit}. {what}?", yes)


def _price_text(price: Price) -> str:
    if price.free:
        return "free"
    if price.input is None or price.output is None:
        return "price unknown"
    return f"{format_money(price.input)} in, {format_money(price.output)} out per million tokens"
