"""The cost estimate and the confirmation of a command that starts work."""

from __future__ import annotations

from django.core.management.base import CommandError

from evalsite.lib.ops.commands import OVER_BUDGET, OutputCommand
from evalsite.lib.text.number_format import format_count, format_money
from runs_app.models import Experiment
from runs_app.pricing.costs import CostEstimate, Price


def print_estimate(command: OutputCommand, estimate: CostEstimate) -> None:
    likely = ""
    if estimate.likely is not None:
        likely = f", about {format_count(estimate.likely)} if every accuracy is equally likely"
    command.write(f"{format_count(estimate.trials)} trials, {format_count(estimate.to_do)} to do{likely}")
    if estimate.policy_text:
        command.write(f"dev policy: {estimate.policy_text}")
    command.write(f"cost: at most {format_money(estimate.ceiling_usd)}, expected {format_money(estimate.expected_usd)}")
    if estimate.foreseen:
        command.write(
            f"      {format_count(estimate.foreseen)} trials probably have cached answers, which cost nothing"
        )
    if estimate.full_usd is not None and estimate.full_usd != estimate.expected_usd:
        command.write(f"      full rerun: {format_money(estimate.full_usd)} expected")
    if estimate.verdicts:
        command.write(f"      including {format_count(estimate.verdicts)} verdicts by its judges")
    if estimate.batched:
        saved = format_money(estimate.batches_save_usd)
        command.write(f"      {estimate.batched} trials use the batch API (up to 24 h), which saves about {saved}")
    command.write(f"      {estimate.coverage:.0%} of the trials are estimated from earlier answers")
    for price in estimate.prices:
        source = ", ".join(str(part) for part in (price.source, price.as_of) if part)
        command.write(f"      {price.model}: {_format_price(price)}" + (f" ({source})" if source else ""))
        command.write(f"        tokens: {price.counted}")
    for sentence in estimate.problems:
        command.stderr.write(f"fix before the launch: {sentence}", command.style.ERROR)
    for sentence in estimate.warnings:
        command.stderr.write(f"warning: {sentence}", command.style.WARNING)


def confirm_cost(
    command: OutputCommand, experiment: Experiment, estimate: CostEstimate, yes: bool, action: str = "Launch"
) -> None:
    """Exit with code 4 or 3 unless the user accepts the cost.

    The code is 4 if the expected cost exceeds the remaining budget, and 3 if the user does not confirm a ceiling that
    needs a confirmation.
    """
    expected = estimate.expected_usd if estimate.expected_usd is not None else estimate.ceiling_usd
    if experiment.max_usd is not None and expected is not None and not yes:
        remaining = experiment.max_usd - experiment.spent_usd
        if expected > remaining:
            raise CommandError(
                f"budget: the expected cost is {format_money(expected)}, but only {format_money(remaining)} remain. "
                f"Raise max_usd, or {action.lower()} with --yes until the budget is used up. Nothing was launched",
                returncode=OVER_BUDGET,
            )
    if experiment.needs_confirmation(estimate.ceiling_usd):
        limit = format_money(experiment.confirm_above_usd)
        command.confirm(f"This may cost {format_money(estimate.ceiling_usd)}, more than {limit}. {action}?", yes)


def _format_price(price: Price) -> str:
    if price.free:
        return "free"
    if price.input is None or price.output is None:
        return "price unknown"
    return f"{format_money(price.input)} in, {format_money(price.output)} out per million tokens"
