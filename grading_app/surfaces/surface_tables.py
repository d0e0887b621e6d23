"""The numbers of each view of the explorer as tables, for pages and files."""

from __future__ import annotations

from collections.abc import Sequence

from grading_app.reports.result_table import ResultColumn, ResultTable, Row
from grading_app.statistics.stratified_shares import overlap_groups
from grading_app.surfaces.explorer_query import ExplorerQuery
from grading_app.surfaces.surface import Estimate, describe_grid, estimate_tasks, subtract

FORMULA = (
    "Accuracy beyond guessing: (correct − G) / (n − G), with G the sum of guess chances and n the answers that were "
    "not cut off. Intervals: Wilson's 95 % interval of the share of right answers, mapped in the same way; "
    "each for itself."
)
NUMBERS = (
    ResultColumn("accuracy", "Accuracy", "coefficient"),
    ResultColumn("interval", "95 % interval", "interval"),
    ResultColumn("n", "n", "count"),
    ResultColumn("correct", "Correct", "count"),
    ResultColumn("guesses", "Guesses", "number"),
    ResultColumn("truncated", "Cut off", "count"),
    ResultColumn("truncation", "Share", "share"),
    ResultColumn("tokens", "Tokens per answer", "number", 0),
)


def make_map_table(question: ExplorerQuery) -> ResultTable:
    """Return one row for each cell of the heat map."""
    grid, cells = question.grid, question.cells(question.condition)
    columns = [*_list_axis_columns(question), *NUMBERS]
    rows: list[Row] = [
        {question.x.name: x, **({question.y.name: y} if question.y else {}), **_list_numbers(cells[x, y])}
        for y in grid.rows
        for x in grid.x.labels
        if (x, y) in cells
    ]
    title = f"{question.task}, {question.labels[question.condition]}"
    return ResultTable("surface", title, columns, rows, formula=FORMULA, notes=_list_notes(question))


def make_curve_table(question: ExplorerQuery) -> ResultTable:
    """Return one row for each condition and value of x."""
    from grading_app.surfaces.surface import estimate_cells

    rows: list[Row] = []
    for condition in question.in_order:
        cells = estimate_cells(question.counts, question.line, condition)
        rows += [
            {"condition": question.labels[condition], question.x.name: x, **_list_numbers(cells[x, ""])}
            for x in question.x.labels
            if (x, "") in cells
        ]
    columns = [ResultColumn("condition", "Condition"), ResultColumn(question.x.name, question.x.name), *NUMBERS]
    title = f"{question.task} along {question.x.name}"
    note = describe_grid(question.line)
    return ResultTable("curves", title, columns, rows, formula=FORMULA, notes=[note] if note else [])


def make_models_table(question: ExplorerQuery) -> ResultTable:
    """Return one row for each condition and cell."""
    rows: list[Row] = []
    for condition in question.labels:
        cells = question.cells(condition)
        rows += [
            {
                "condition": question.labels[condition],
                question.x.name: x,
                **({question.y.name: y} if question.y else {}),
                **_list_numbers(cells[x, y]),
            }
            for y in question.grid.rows
            for x in question.x.labels
            if (x, y) in cells
        ]
    columns = [ResultColumn("condition", "Condition"), *_list_axis_columns(question), *NUMBERS]
    return ResultTable(
        "models", f"{question.task} by condition", columns, rows, formula=FORMULA, notes=_list_notes(question)
    )


def make_difference_table(question: ExplorerQuery) -> ResultTable:
    """Return one row for each cell that both conditions have: the compared condition minus the chosen one."""
    rows = _list_difference_rows(question)
    columns = [
        *_list_axis_columns(question),
        ResultColumn("difference", "Difference", "signed"),
        ResultColumn("interval", "95 % interval", "interval"),
        ResultColumn("a", "A", "coefficient"),
        ResultColumn("b", "B", "coefficient"),
        ResultColumn("n_a", "n of A", "count"),
        ResultColumn("n_b", "n of B", "count"),
    ]
    apart = sum(1 for row in rows if row["interval"][0] > 0 or row["interval"][1] < 0)
    return ResultTable(
        "difference",
        f"{question.task}: B minus A",
        columns,
        rows,
        formula=FORMULA,
        test=(
            "Intervals of differences: Newcombe's hybrid of both Wilson intervals, as if the answers were independent. "
            "Both answered the same items, so they are rather too wide."
        ),
        sentence=(
            f"A: {question.labels[question.condition]}. B: {question.labels[question.against]}. {apart} of {len(rows)} "
            "intervals do not hold 0; each is for itself, so that about one of twenty would without any difference."
        ),
        notes=_list_notes(question),
    )


def _list_difference_rows(question: ExplorerQuery) -> list[Row]:
    one, other = question.cells(question.condition), question.cells(question.against)
    rows: list[Row] = []
    for y in question.grid.rows:
        for x in question.x.labels:
            a, b = one.get((x, y)), other.get((x, y))
            found = subtract(a, b) if a and b else None
            if a and b and found:
                rows.append(
                    {
                        question.x.name: x,
                        **({question.y.name: y} if question.y else {}),
                        "difference": found[0],
                        "interval": found[1:],
                        "a": a.value,
                        "b": b.value,
                        "n_a": a.tally.total,
                        "n_b": b.tally.total,
                    }
                )
    return rows


def make_tasks_table(question: ExplorerQuery) -> ResultTable:
    """Return one row for each condition and task."""
    rows: list[Row] = [
        {"condition": label, "task": task, **_list_numbers(found)}
        for condition, label in question.labels.items()
        for task, found in estimate_tasks(question.counts, condition).items()
    ]
    columns = [ResultColumn("condition", "Condition"), ResultColumn("task", "Task"), *NUMBERS]
    return ResultTable("tasks", "Accuracy by task", columns, rows, formula=FORMULA)


def make_clusters_table(question: ExplorerQuery) -> ResultTable:
    """Return the conditions of the task from the highest accuracy, with the groups whose intervals all overlap."""
    found = {
        condition: estimates[question.task]
        for condition in question.labels
        if question.task in (estimates := estimate_tasks(question.counts, condition)) and estimates[question.task].ends
    }
    ordered = sorted(found, key=lambda condition: -(found[condition].value or 0.0))
    groups = overlap_groups([found[condition].ends or (0.0, 0.0) for condition in ordered])
    names = {
        at: [_get_letter(number) for number, group in enumerate(groups) if at in group] for at in range(len(ordered))
    }
    rows: list[Row] = [
        {"condition": question.labels[condition], "clusters": " ".join(names[at]), **_list_numbers(found[condition])}
        for at, condition in enumerate(ordered)
    ]
    columns = [ResultColumn("condition", "Condition"), ResultColumn("clusters", "Clusters"), *NUMBERS]
    return ResultTable(
        "clusters",
        f"Clusters of conditions in {question.task}",
        columns,
        rows,
        formula=FORMULA,
        notes=[
            "Conditions with a common letter have intervals that all overlap. Overlap is no test: two intervals may "
            "overlap although a test tells them apart. The leaderboard's ranks are tests."
        ],
    )


def _get_letter(number: int) -> str:
    """Return A to Z, then A2 to Z2, and so on."""
    turn, letter = divmod(number, 26)
    return chr(ord("A") + letter) + (str(turn + 1) if turn else "")


def _list_axis_columns(question: ExplorerQuery) -> list[ResultColumn]:
    axes = [question.x, *([question.y] if question.y else [])]
    return [ResultColumn(axis.name, axis.name) for axis in axes]


def _list_numbers(one: Estimate) -> Row:
    return {
        "accuracy": one.value,
        "interval": one.ends,
        "n": one.tally.total,
        "correct": one.tally.correct,
        "guesses": one.tally.guess_chances,
        "truncated": one.tally.truncated,
        "truncation": one.tally.truncation,
        "tokens": one.tokens,
    }


def _list_notes(question: ExplorerQuery) -> Sequence[str]:
    note = describe_grid(question.grid)
    return [note] if note else []
