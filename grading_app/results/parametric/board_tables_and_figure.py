"""The site's leaderboard as tables for files and as a figure, and its sort orders."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from grading_app.results.figure import Figure
from grading_app.results.parametric import heat_figure
from grading_app.results.parametric.heat_figure import HeatPanel
from grading_app.results.parametric.model_board import ModelBoard, ModelRow, Weights
from grading_app.results.parametric.surface import LEVELS
from grading_app.results.parametric.surface_figures import PREFIX
from grading_app.results.table import ResultColumn, ResultTable
from grading_app.statistics.reason_score import MIN_TASKS, TaskScore

WEIGHT_LABELS: Mapping[Weights, str] = {"points": "Mean over points", "answers": "All answers pooled"}
CELLS: Mapping[Weights, str] = {
    "points": (
        "Cells: Price and Bonett's 95 % interval of the mean over points of the accuracy beyond guessing. All points "
        "have the same weight, whatever their number of answers. In simulations, the interval covers 91 to 100 %. "
    ),
    "answers": (
        "Cells: Wilson's 95 % interval over the pooled answers of all points that were not cut off, mapped to the "
        "accuracy beyond guessing. In simulations, it covers 93 % or more. With adaptive stopping, points with more "
        "cases have more weight. "
    ),
}
SCORES = (
    "The share of cut-off answers is in brackets if it is above 2 %. ReasonScore: 1000 times the geometric mean over "
    "tasks of center + margin − truncation{}. Version 2: 1000 times the geometric mean over tasks of the chance of a "
    "finished right answer beyond guessing, at least .01. "
)
PUBLISHED_CENTER = (
    ", where center and margin are Wilson's of (max(0, correct − G), n − G), with G the sum of guess chances"
)
INTERVAL_OVER_TASKS = (
    "Its 95 % interval is over tasks like these: the score interval of the mean logarithm, Student's t over tasks."
)
TOO_FEW_TASKS = f"It has no interval over fewer than {MIN_TASKS} tasks, because other tasks could change it by far."
RANKS = (
    "Ranks: Cochran–Mantel–Haenszel tests of all pairs over the answers at common points, with Holm's correction at "
    "5 %. The first rank of a row is 1 plus the number of significantly better rows, the last rank the number of rows "
    "that are not significantly worse. Ranks do not depend on the weights of the cells."
)
DEFAULT_SORT = "-score"
SORTS: Mapping[str, Callable[[ModelRow], Any]] = {
    "score": lambda row: row.first.score if row.first else None,
    "score2": lambda row: row.second.score if row.second else None,
    "rank": lambda row: row.rank.first,
    "tokens": lambda row: row.mean_tokens,
    "per-token": lambda row: row.per_token,
    "answers": lambda row: row.answers,
    "model": lambda row: row.model,
}
CELL_WIDTH, NAME_WIDTH, SCORE_WIDTH = 104, 300, 150
"""CSS pixels of a task, of the name of a row, and of the scores."""


def describe_cells(board: ModelBoard) -> str:
    """Return how the cells and both scores are computed."""
    seconds = [row.second for row in board.rows if row.second]
    notes = [INTERVAL_OVER_TASKS] if any(second.low is not None for second in seconds) else []
    if any(second.low is None for second in seconds):
        notes.append(TOO_FEW_TASKS)
    return CELLS[board.weights] + SCORES.format(PUBLISHED_CENTER * (board.weights == "answers")) + " ".join(notes)


def sort_rows(board: ModelBoard, sort: str) -> list[ModelRow]:
    """Return the rows in this order, rows without a value last. Raise KeyError for an unknown order."""
    name, is_descending = sort.removeprefix("-"), sort.startswith("-")
    if name.startswith("task-"):
        task = name.removeprefix("task-")
        if task not in board.tasks:
            raise KeyError(sort)
        value: Callable[[ModelRow], Any] = lambda row: _get_center(row, task)  # noqa: E731
    else:
        value = SORTS[name]
    rows_with_value = [row for row in board.rows if value(row) is not None]
    rows_without_value = [row for row in board.rows if value(row) is None]
    return sorted(rows_with_value, key=value, reverse=is_descending) + rows_without_value


def _get_center(row: ModelRow, task: str) -> float | None:
    cell = row.tasks.get(task)
    return cell.interval.center if cell and cell.interval else None


def make_board_table(board: ModelBoard, rows: list[ModelRow]) -> ResultTable:
    """Return the leaderboard with unrounded values, and an interval and the truncation per task."""
    tasks = board.tasks
    columns = [
        ResultColumn("model", "Model"),
        ResultColumn("prompt", "Prompt"),
        ResultColumn("sampler", "Sampler"),
        ResultColumn("experiment", "Experiment"),
        ResultColumn("rank", "Rank"),
        ResultColumn("reason_score", "ReasonScore", "number", 0),
        ResultColumn("reason_score_2", "Version 2", "number", 0),
        ResultColumn("reason_score_2_ci", "95 % interval", "interval", 0),
        ResultColumn("incomplete", "Incomplete"),
        ResultColumn("weights", "Equal weights"),
    ]
    for task in tasks:
        columns += [
            ResultColumn(f"{task}_value", task, "coefficient"),
            ResultColumn(f"{task}_center", "Center", "coefficient"),
            ResultColumn(f"{task}_ci", "95 % interval", "interval"),
            ResultColumn(f"{task}_truncated", "Cut off", "share"),
            ResultColumn(f"{task}_points", "Points"),
        ]
    columns += [
        ResultColumn("answers", "Answers", "count"),
        ResultColumn("tokens", "Output tokens", "count"),
        ResultColumn("mean_tokens", "Per answer", "number", 0),
        ResultColumn("score_per_token", "Score per token", "number", 3),
    ]
    records = [_make_record(row) | {"weights": board.weights} for row in rows]
    formula = describe_cells(board)
    return ResultTable("leaderboard", "Task leaderboard", columns, records, formula=formula, correction=RANKS)


def make_compact_table(board: ModelBoard, rows: list[ModelRow]) -> ResultTable:
    """Return the leaderboard with one column per task, as on the page. For papers."""
    tasks = board.tasks
    columns = [
        ResultColumn("name", "Model / prompt / sampler"),
        ResultColumn("rank", "Rank"),
        *(ResultColumn(task, task) for task in tasks),
        ResultColumn("reason_score", "ReasonScore"),
        ResultColumn("reason_score_2", "Version 2"),
        ResultColumn("mean_tokens", "Tokens", "number", 0),
    ]
    records = [
        {
            "name": f"{row.model} / {row.prompt} / {row.sampler}",
            "rank": str(row.rank),
            **{task: cell.describe() for task, cell in row.tasks.items()},
            "reason_score": row.first.marked if row.first else None,
            "reason_score_2": describe_second(row),
            "mean_tokens": row.mean_tokens,
        }
        for row in rows
    ]
    formula = describe_cells(board)
    return ResultTable("compact", "Task leaderboard", columns, records, formula=formula, correction=RANKS)


def describe_second(row: ModelRow) -> str:
    """Return the second score with its interval, for example `540 (95 %: 302 to 811)`."""
    if row.second is None:
        return ""
    interval = f" (95 %: {row.second.low:.0f} to {row.second.high:.0f})" if row.second.low is not None else ""
    return f"{row.second.marked}{interval}"


def _make_record(row: ModelRow) -> dict[str, Any]:
    record: dict[str, Any] = {
        "model": row.model,
        "prompt": row.prompt,
        "sampler": row.sampler,
        "experiment": row.experiment,
        "rank": str(row.rank),
        "reason_score": row.first.score if row.first else None,
        "reason_score_2": row.second.score if row.second else None,
        "reason_score_2_ci": (row.second.low, row.second.high) if row.second and row.second.low is not None else None,
        "incomplete": "*" if row.incomplete else "",
        "answers": row.answers,
        "tokens": row.tokens,
        "mean_tokens": row.mean_tokens,
        "score_per_token": row.per_token,
    }
    for task, cell in row.tasks.items():
        record[f"{task}_value"] = cell.value
        record[f"{task}_points"] = "{} of {}".format(*row.points[task])
        record[f"{task}_center"] = cell.interval.center if cell.interval else None
        record[f"{task}_ci"] = (cell.interval.low, cell.interval.high) if cell.interval else None
        record[f"{task}_truncated"] = cell.truncation
    return record


def compute_board_width(tasks: list[str]) -> int:
    return NAME_WIDTH + CELL_WIDTH * (len(tasks) + 2)


def make_board_figure(board: ModelBoard, rows: list[ModelRow]) -> Figure:
    """Return the leaderboard with these rows."""
    # The cells are those of the page, with both scores at the end.
    panel_rows = []
    for row in rows:
        cells = [
            (cell.describe(), get_cell_level(cell)) if (cell := row.tasks.get(task)) else ("–", None)
            for task in board.tasks
        ]
        scores = [(row.first.marked if row.first else "–", None), (describe_second(row) or "–", None)]
        panel_rows.append((f"{row.rank}  {row.model} / {row.prompt} / {row.sampler}", [*cells, *scores]))
    panels = [HeatPanel("", [*board.tasks, "ReasonScore", "version 2"], panel_rows)]
    weights = WEIGHT_LABELS[board.weights].lower()
    return Figure(
        f"{PREFIX}leaderboard",
        "Task leaderboard",
        f"Each cell: the 95 % interval of accuracy beyond guessing ({weights}), and the share of cut-off answers in "
        "brackets. Shade: the middle of the interval.",
        "Scores of each model, prompt and sampler by task. The table holds the numbers.",
        lambda width: heat_figure.compute_size(panels, width),
        lambda width: heat_figure.draw_heat_map(panels, width),
        lambda: make_board_table(board, rows),
        page="explorer",
    )


def get_cell_level(cell: TaskScore) -> int | None:
    """Return the shade of a cell by its center, from 0 to 4."""
    if cell.interval is None:
        return None
    return min(LEVELS - 1, max(0, int(cell.interval.center * LEVELS)))
