"""The figure of the leaderboard."""

from __future__ import annotations

from grading_app.parametric import heat_figure
from grading_app.parametric.board_tables import WEIGHT_LABELS, describe_second, make_board_table
from grading_app.parametric.heat_figure import HeatPanel
from grading_app.parametric.model_board import ModelBoard, ModelRow
from grading_app.parametric.surface import LEVELS
from grading_app.parametric.surface_figures import PREFIX
from grading_app.results.figure import Figure
from grading_app.statistics.reason_score import TaskScore

CELL_WIDTH, NAME_WIDTH, SCORE_WIDTH = 104, 300, 150
"""CSS pixels of a task, of the name of a row, and of the scores."""


def compute_board_width(tasks: list[str]) -> int:
    return NAME_WIDTH + CELL_WIDTH * (len(tasks) + 2)


def make_figure(board: ModelBoard, rows: list[ModelRow]) -> Figure:
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
