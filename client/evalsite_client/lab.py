"""The lab and its experiments."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from evalsite_client.connection import Connection
from evalsite_client.tables import Table, import_package

ENDED = {"done", "partial", "failed", "cancelled", "stopped", "paused", "archived", "draft", "stored"}
BAR = 30  # Characters.


class Lab:
    """A site of Evalsite, as the account of a token. Without arguments: EVALSITE_URL and EVALSITE_TOKEN."""

    def __init__(self, url: str = "", token: str = "", *, timeout_s: float = 300) -> None:
        url, token = url or os.environ.get("EVALSITE_URL", ""), token or os.environ.get("EVALSITE_TOKEN", "")
        if not url or not token:
            raise ValueError("name the site and the token: Lab(url, token), or EVALSITE_URL and EVALSITE_TOKEN")
        self._connection = Connection(url, token, timeout_s)

    def __repr__(self) -> str:
        return f"Lab({self._connection.url!r})"

    @property
    def url(self) -> str:
        return self._connection.url

    def experiments(self) -> list[RemoteExperiment]:
        rows = self._connection.list_rows("/experiments")
        return [RemoteExperiment(self._connection, row["name"], row) for row in rows]

    def experiment(self, name: str) -> RemoteExperiment:
        """Return the experiment. Raise ApiError if it does not exist or the account may not see it."""
        return RemoteExperiment(self._connection, name, self._connection.get(f"/experiments/{name}"))

    def create(self, design: str | Path | Mapping[str, Any]) -> RemoteExperiment:
        """Create a draft from the path of an experiment file, its text, or its content as a mapping."""
        if isinstance(design, Path):
            design = design.read_text(encoding="utf-8")
        row = self._connection.post("/experiments", {"file" if isinstance(design, str) else "design": design})
        return RemoteExperiment(self._connection, row["name"], row)

    def datasets(self) -> list[dict[str, Any]]:
        return list(self._connection.list_rows("/datasets"))

    def items(self, dataset: str, version: int = 1) -> Iterator[dict[str, Any]]:
        return self._connection.list_rows(f"/datasets/{dataset}/{version}/items")

    def prompts(self) -> list[dict[str, Any]]:
        return list(self._connection.list_rows("/prompts"))

    def models(self) -> list[dict[str, Any]]:
        return list(self._connection.list_rows("/models"))


class RemoteExperiment:
    """An experiment of the site. `facts` is its state when it was last read."""

    def __init__(self, connection: Connection, name: str, facts: dict[str, Any]) -> None:
        self._connection, self.name, self.facts = connection, name, facts

    def __repr__(self) -> str:
        facts = self.facts
        return f"<Experiment {self.name}: {facts['state']}, {facts['done']} of {facts['trials']} trials>"

    def _repr_html_(self) -> str:
        return _write_html(["name", "state", "dataset", "trials", "done", "failed", "spent_usd"], [self.facts])

    def refresh(self) -> RemoteExperiment:
        self.facts = self._connection.get(f"/experiments/{self.name}")
        return self

    def status(self) -> dict[str, Any]:
        """Return the report by condition and wave: trials, costs, judges, warnings."""
        return dict(self._get("status"))

    def design(self) -> dict[str, Any]:
        return dict(self._get("design"))

    def runs(self) -> list[dict[str, Any]]:
        return list(self._connection.list_rows(f"/experiments/{self.name}/runs"))

    def trials(self, **filters: Any) -> Table:
        return self.table("trials", **filters)

    def gradings(self, **filters: Any) -> Table:
        return self.table("gradings", **filters)

    def table(self, name: str, **filters: Any) -> Table:
        """Return an exported table, such as attempts, answers, items or ledger."""
        return Table(self._connection, self.name, name, filters)

    def results(self, wave: str = "", *, by_category: bool = False) -> Results:
        """Return the means with their intervals, as on the results page."""
        query = {"wave": wave, "by_category": "true" if by_category else ""}
        return Results(self._connection.get(f"/experiments/{self.name}/results", query)["scores"])

    def figures(self, **choices: Any) -> list[dict[str, Any]]:
        """Return the names, titles and formats of the figures for papers."""
        return list(self._connection.get(f"/experiments/{self.name}/figures", choices)["figures"])

    def save_figure(self, name: str, path: str | Path, **choices: Any) -> Path:
        """Write a figure to a file: svg, png or pdf, or its numbers as csv, by its suffix."""
        path = Path(path)
        address = f"/experiments/{self.name}/figures/{name}{path.suffix}"
        with self._connection.open("GET", address, choices) as answer:
            path.write_bytes(answer.read())
        return path

    def estimate(self, *, wave: str = "", pilot: int | None = None, policy: str | None = None) -> dict[str, Any]:
        return dict(self._post("estimate", wave=wave, pilot=pilot, policy=policy))

    def launch(
        self,
        *,
        max_usd: float | str | None = None,
        wave: str = "",
        pilot: int | None = None,
        policy: str | None = None,
        accept_cost: bool = False,
        wait: bool = False,
    ) -> dict[str, Any]:
        """Start the missing trials. With `max_usd`, the site refuses a launch that may cost more."""
        scope = {"wave": wave, "pilot": pilot, "policy": policy}
        limit = None if max_usd is None else str(max_usd)
        report = dict(self._post("launch", **scope, max_usd=limit, accept_cost=accept_cost))
        if wait:
            self.wait()
        return report

    def pause(self, reason: str = "") -> int:
        return int(self._post("pause", reason=reason)["changed"])

    def resume(self, reason: str = "") -> int:
        return int(self._post("resume", reason=reason)["changed"])

    def cancel(self, reason: str) -> int:
        return int(self._post("cancel", reason=reason)["changed"])

    def wait(self, *, every_s: float = 2.0, progress: bool = True) -> RemoteExperiment:
        """Return when no run makes calls any more. Meanwhile, show a progress bar."""
        while True:
            facts = self.refresh().facts
            is_over = facts["state"] in ENDED
            if progress:
                sys.stderr.write(f"\r{format_progress(facts)}" + ("\n" if is_over else ""))
                sys.stderr.flush()
            if is_over:
                return self
            time.sleep(every_s)

    def _get(self, part: str) -> Any:
        return self._connection.get(f"/experiments/{self.name}/{part}")

    def _post(self, verb: str, **body: Any) -> Any:
        return self._connection.post(f"/experiments/{self.name}/{verb}", body)


class Results(Sequence[Any]):
    """The scores by measure and condition, each with its interval, method, n and number of answers."""

    def __init__(self, scores: list[dict[str, Any]]) -> None:
        self._scores = scores

    def __getitem__(self, index: Any) -> Any:
        return self._scores[index]

    def __len__(self) -> int:
        return len(self._scores)

    def __repr__(self) -> str:
        return "\n".join(map(_format_score, self._scores)) or "<no scores yet>"

    def _repr_html_(self) -> str:
        return _write_html(["measure", "condition", "mean", "low", "high", "n", "of", "method"], self._scores)

    def to_pandas(self) -> Any:
        return import_package("pandas", "pandas").DataFrame(self._scores)

    def to_polars(self) -> Any:
        return import_package("polars", "polars").DataFrame(self._scores)


def format_progress(facts: Mapping[str, Any]) -> str:
    """Return a bar such as `[#####-----] 50 of 100 trials, 2 failed, $0.12, running`."""
    ended, trials = facts["done"] + facts["failed"], facts["trials"]
    filled = BAR * ended // trials if trials else 0
    failed = f", {facts['failed']} failed" if facts["failed"] else ""
    spent = f", ${float(facts['spent_usd']):.2f}" if facts["spent_usd"] is not None else ""
    return f"[{'#' * filled:-<{BAR}}] {ended} of {trials} trials{failed}{spent}, {facts['state']}"


def _format_score(score: Mapping[str, Any]) -> str:
    mean = "no score" if score["mean"] is None else f"{score['mean']:.4g}"
    interval = "" if score["low"] is None else f", {score['low']:.4g} to {score['high']:.4g}"
    return f"{score['measure']}, {score['condition']}: {mean}{interval}, n {score['n']} of {score['of']}"


def _write_html(columns: list[str], rows: Sequence[Mapping[str, Any]]) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    cells = ["".join(f"<td>{escape(_format_cell(row[column]))}</td>" for column in columns) for row in rows]
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(f'<tr>{row}</tr>' for row in cells)}</tbody></table>"


def _format_cell(value: Any) -> str:
    return "" if value is None else f"{value:.4g}" if isinstance(value, float) else str(value)
