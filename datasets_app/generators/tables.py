"""Tables: a lookup or an aggregation in a table.

Specification. The input is a table in the notation of `format`, and a question about it. Each of the `rows` rows has a
unique name, one of four regions, and `columns` integers from 0 to 999. No integer occurs twice in a column. `operation`
is the kind of question:

- lookup: the integer of one column in one row.
- count: the number of rows above a limit in one column. The limit is between the smallest and the largest integer of
  the column. Each number from 0 to `rows` - 1 is equally likely.
- sum: the sum of one column over the rows of one region.
- max: the name of the row with the largest integer of one column. The choices are all names, so a guess is correct
  with a probability of 1/`rows`.
- difference: the difference between two rows in one column.

ReasonScape publishes the parameters' names, and reading, filtering and aggregating as the subject. Our choices:
notations, operations and contents. Except for max, the answer is an integer, and free text has a guess chance of 0.
In version 1, the limit of a count could be below or above all integers of the column.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any, Literal

from datasets_app.generators.answer_rules import AnswerRule, normalize_integer, normalize_text
from datasets_app.generators.generator import Case, Edition, Generator, Instructions, Params, declare_param
from datasets_app.generators.vocabulary import load_dictionary

COLUMNS = ("price", "stock", "weight", "height", "age", "score", "sales", "visits", "points", "orders")
REGIONS = ("north", "south", "east", "west")
Table = list[dict[str, Any]]
Answer = tuple[str, str, str]  # The question, its target, and the reasoning.
Operation = Callable[[Table, str, Random], Answer]


class TablesParams(Params):
    rows: int = declare_param(6, "Number of rows.", harder="higher", ge=2, le=200)
    columns: int = declare_param(3, "Number of columns of integers.", harder="higher", ge=1, le=len(COLUMNS))
    format: Literal["markdown", "csv", "tsv", "json", "html"] = declare_param(
        "markdown", "Notation of the table; the effect differs between models.", harder="neutral"
    )
    operation: Literal["lookup", "count", "sum", "max", "difference"] = declare_param(
        "lookup", "Kind of question; count and sum read the most rows.", harder="other"
    )


def draw(params: TablesParams, rng: Random) -> Case:
    return _draw_case(params, rng, OPERATIONS)


def draw_unbalanced(params: TablesParams, rng: Random) -> Case:
    """Return a case as version 1 drew it."""
    return _draw_case(params, rng, OPERATIONS | {"count": _ask_count_around})


def _draw_case(params: TablesParams, rng: Random, operations: dict[str, Operation]) -> Case:
    names = [word.capitalize() for word in rng.sample(load_dictionary(), params.rows)]
    columns = rng.sample(COLUMNS, params.columns)
    values = {column: rng.sample(range(1000), params.rows) for column in columns}
    table: Table = [
        {"name": name, "region": rng.choice(REGIONS)} | {column: values[column][index] for column in columns}
        for index, name in enumerate(names)
    ]
    column = rng.choice(list(table[0])[2:])
    question, target, reasoning = operations[params.operation](table, column, rng)
    choices = tuple(row["name"] for row in table) if params.operation == "max" else None
    facts = {"column": column, "operation": params.operation, "reasoning": reasoning}
    return Case(f"{FORMATS[params.format](table)}\n\n{question}", target, choices, facts)


def _ask_lookup(table: Table, column: str, rng: Random) -> Answer:
    row = rng.choice(table)
    return (
        f"What is the value of {column} for {row['name']}?",
        str(row[column]),
        f"The row of {row['name']} has {row[column]}.",
    )


def _ask_count(table: Table, column: str, rng: Random) -> Answer:
    above = rng.randrange(len(table))
    values = sorted((row[column] for row in table), reverse=True)
    return _count_rows(table, column, rng.randrange(values[above], values[above - 1]) if above else values[0])


def _ask_count_around(table: Table, column: str, rng: Random) -> Answer:
    return _count_rows(table, column, rng.choice(table)[column] + rng.randint(-20, 20))


def _count_rows(table: Table, column: str, limit: int) -> Answer:
    names = [row["name"] for row in table if row[column] > limit]
    return (
        f"How many rows have a value of {column} above {limit}?",
        str(len(names)),
        f"Rows: {', '.join(names) or 'none'}.",
    )


def _ask_sum(table: Table, column: str, rng: Random) -> Answer:
    region = rng.choice(table)["region"]
    values = [row[column] for row in table if row["region"] == region]
    total = sum(values)
    question = f"What is the sum of {column} over all rows of the region {region}?"
    return question, str(total), f"{' + '.join(map(str, values))} = {total}"


def _ask_max(table: Table, column: str, rng: Random) -> Answer:
    row = max(table, key=lambda candidate: candidate[column])
    return f"Which name has the highest value of {column}?", row["name"], f"The highest {column} is {row[column]}."


def _ask_difference(table: Table, column: str, rng: Random) -> Answer:
    low, high = sorted(rng.sample(table, 2), key=lambda row: row[column])
    result = high[column] - low[column]
    question = f"How much higher is the value of {column} for {high['name']} than for {low['name']}?"
    return question, str(result), f"{high[column]} - {low[column]} = {result}"


def _make_separated_writer(separator: str) -> Callable[[Table], str]:
    def write(table: Table) -> str:
        return "\n".join(
            separator.join(map(str, row)) for row in [list(table[0]), *(list(row.values()) for row in table)]
        )

    return write


def _write_markdown(table: Table) -> str:
    head, *body = (f"| {' | '.join(map(str, row))} |" for row in [list(table[0]), *(row.values() for row in table)])
    return "\n".join([head, f"|{' --- |' * len(table[0])}", *body])


def _write_json(table: Table) -> str:
    return "[\n" + ",\n".join(f"  {json.dumps(row)}" for row in table) + "\n]"


def _write_html(table: Table) -> str:
    def line(values: list[Any], tag: str) -> str:
        return "  <tr>" + "".join(f"<{tag}>{value}</{tag}>" for value in values) + "</tr>"

    body = [line(list(row.values()), "td") for row in table]
    return "\n".join(["<table>", line(list(table[0]), "th"), *body, "</table>"])


OPERATIONS: dict[str, Operation] = {
    "lookup": _ask_lookup,
    "count": _ask_count,
    "sum": _ask_sum,
    "max": _ask_max,
    "difference": _ask_difference,
}
FORMATS: dict[str, Callable[[Table], str]] = {
    "markdown": _write_markdown,
    "csv": _make_separated_writer(","),
    "tsv": _make_separated_writer("\t"),
    "json": _write_json,
    "html": _write_html,
}


def explain(case: Case) -> str:
    """Return the calculation of the answer."""
    return str(case.genresult["reasoning"])


def _normalize_answer(text: str) -> str:
    return normalize_integer(text) if any(character.isdigit() for character in text) else normalize_text(text)


GENERATOR = Generator(
    name="tables",
    title="Table questions",
    version=2,
    params=TablesParams,
    draw=draw,
    earlier={1: Edition(draw_unbalanced, is_distinct=False)},
    explain=explain,
    instructions=Instructions("Answer the question about the table.", "(an integer or a name, and nothing else)"),
    answer=AnswerRule(r"(?<![0-9.,])([-−+]?[0-9][0-9,]*(?![0-9,]*[.][0-9])|[A-Za-z]+)\.?", _normalize_answer),
)
