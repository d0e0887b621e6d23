"""The second solver parses each notation with a parser of its own, and filters text cells."""

import csv
import json
import re
from html.parser import HTMLParser

from tests.unit.generators.solving import check, generate_cases, over_points


class Cells(HTMLParser):
    def __init__(self):
        super().__init__()
        self.rows = []

    def handle_starttag(self, tag, attrs):
        if tag == "tr":
            self.rows.append([])

    def handle_data(self, data):
        if data.strip():
            self.rows[-1].append(data)


def parse_records(text):
    if text.startswith("["):
        return [{key: str(value) for key, value in row.items()} for row in json.loads(text)]
    if text.startswith("<"):
        parser = Cells()
        parser.feed(text)
        rows = parser.rows
    elif text.startswith("|"):
        rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.split("\n")]
        assert set(rows.pop(1)) == {"---"}
    else:
        rows = list(csv.reader(text.split("\n"), delimiter="\t" if "\t" in text else ","))
    return [dict(zip(rows[0], row, strict=True)) for row in rows[1:]]


def solve(text):
    table, question = text.split("\n\n")
    rows = {row["name"]: row for row in parse_records(table)}
    if result := re.fullmatch(r"What is the value of (\w+) for (\w+)\?", question):
        return rows[result[2]][result[1]]
    if result := re.fullmatch(r"How many rows have a value of (\w+) above (-?\d+)\?", question):
        return str(len([row for row in rows.values() if int(row[result[1]]) > int(result[2])]))
    if result := re.fullmatch(r"What is the sum of (\w+) over all rows of the region (\w+)\?", question):
        return str(sum(int(row[result[1]]) for row in rows.values() if row["region"] == result[2]))
    if result := re.fullmatch(r"Which name has the highest value of (\w+)\?", question):
        ranked = sorted(rows.values(), key=lambda row: int(row[result[1]]))
        assert len(ranked) == 1 or int(ranked[-1][result[1]]) > int(ranked[-2][result[1]])
        return ranked[-1]["name"]
    column, high, low = re.fullmatch(
        r"How much higher is the value of (\w+) for (\w+) than for (\w+)\?", question
    ).groups()
    return str(int(rows[high][column]) - int(rows[low][column]))


@over_points("tables")
def test_the_target_answers_the_question_about_the_table(values, seed):
    check("tables", solve, values, seed)


def test_the_table_has_the_requested_rows_and_columns():
    for notation in ("markdown", "csv", "tsv", "json", "html"):
        case = generate_cases("tables", {"rows": 9, "columns": 4, "format": notation}, count=1)[0]
        records = parse_records(case.input.split("\n\n")[0])
        assert len(records) == 9
        assert all(len(record) == 6 for record in records)


def test_only_questions_for_the_highest_name_have_choices():
    assert generate_cases("tables", {"operation": "max", "rows": 5}, count=1)[0].guess_chance * 5 == 1
    assert generate_cases("tables", {"operation": "sum"}, count=1)[0].choices is None
