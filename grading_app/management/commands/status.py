"""The command `manage.py status [EXPERIMENT] [--json]`: results, cost and warnings of every condition."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from evalsite.lib.ops.commands import OutputCommand
from evalsite.lib.text.number_format import format_count, format_money
from grading_app.results.status_report import ANSWER_KINDS, build_status_report, format_judge
from runs_app.management.experiment_lookup import get_experiment, print_experiments
from runs_app.models.totals import STATUSES


class Command(OutputCommand):
    help = "Show the status of an experiment by condition, or list all experiments."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("experiment", nargs="?")
        parser.add_argument("--json", action="store_true")

    def handle(self, *args: Any, experiment: str | None, json: bool, **options: Any) -> None:
        if experiment is None:
            print_experiments(self, json)
            return
        report = build_status_report(get_experiment(experiment, "experiment"))
        if json:
            self.write_json(report)
        else:
            self._print(report)

    def _print(self, report: dict[str, Any]) -> None:
        budget = format_money(report["max_usd"]) if report["max_usd"] else "no budget"
        self.write(f"{report['experiment']} ({report['state']}) over {report['dataset']}")
        failed = f", {format_count(report['failed'])} failed" if report["failed"] else ""
        self.write(f"{format_count(report['done'])} of {format_count(report['trials'])} trials done{failed}")
        self.write(
            f"{format_money(report['spent_usd'])} spent, {format_money(report['reserved_usd'])} reserved, {budget}"
        )
        if projection := report["projection"]:
            over = ", more than the budget" if projection["is_over_budget"] else ""
            self.write(
                f"projected cost {format_money(projection['total_usd'])}{over}: spent so far, plus"
                f" {format_count(projection['remaining'])} trials at {format_money(projection['usd_each'])}"
            )
        for blocker in report["blockers"]:
            self.write(f"waiting: {blocker['sentence']}")
        if len(report["waves"]) > 1:
            for wave in report["waves"]:
                other_counts = [
                    f", {format_count(wave[name])} {name}" for name in STATUSES if wave[name] and name != "done"
                ]
                done = f"{format_count(wave['done'])} of {format_count(wave['trials'])} done{''.join(other_counts)}"
                self.write(f"  {wave['name']}: {done}, {format_money(wave['spent_usd'])} spent")
        for run in report["runs"]:
            self._print_run(run)
        for rule in report["rules"]:
            unread, codes = sum(rule["unread"].values()), ", ".join(f"{n} {code}" for code, n in rule["unread"].items())
            unreadable = f", {format_count(unread)} answers could not be read ({codes})" if unread else ""
            self.write(f"\nscorer {rule['scorer']}: {format_count(rule['scored'])} answers scored{unreadable}")
        for measure in dict.fromkeys(score["measure"] for score in report["scores"]):
            self._print_scores([score for score in report["scores"] if score["measure"] == measure])
        for line in report["judging"]:
            self.write(f"\n{format_judge(line)}\n  {format_money(line['spent_usd'])} spent")
        for sentence in report["warnings"]:
            self.stderr.write(f"warning: {sentence}", self.style.WARNING)

    def _print_scores(self, scores: list[dict[str, Any]]) -> None:
        """Print one measure: a line for each condition, with its 95 % interval."""
        self.write(f"\n{scores[0]['label']}, 95 % intervals by item:")
        for score in scores:
            missing = f", {format_count(score['missing'])} without a score" if score["missing"] else ""
            reason = f", no interval: {score['reason']}" if score["reason"] else ""
            counts = f"n {format_count(score['n'])} of {format_count(score['items'])} items"
            self.write(f"  {score['condition']}: {score['text']}, {counts}{missing}{reason}")

    def _print_run(self, run: dict[str, Any]) -> None:
        wave = f" [{run['wave_label'] or run['wave']}]" if run["wave"] else ""
        self.write(f"\n{run['condition_id']}{wave}: {run['state']} {run['stop_reason']}".rstrip())
        counts = [(name, run[name]) for name in ("done", "failed", "pending", "running", "cancelled", *ANSWER_KINDS)]
        if run["done"] is None:
            counts.insert(0, ("ended", run["ended"]))
        self.write("  " + ", ".join(f"{format_count(n)} {name}" for name, n in counts if n))
        if run["errors"]:
            self.write("  errors: " + ", ".join(f"{n} {name}" for name, n in run["errors"].items()))
        unpriced = f", {run['unpriced']} attempts of unknown cost" if run["unpriced"] else ""
        if run["attempts"] is not None:
            self.write(f"  {format_money(run['spent_usd'])} for {format_count(run['attempts'])} attempts{unpriced}")
