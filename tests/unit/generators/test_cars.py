"""The second solver reads the row, the seats and each line, and keeps the set of people of each car."""

import re

from tests.unit.generators.solving import check, generate_cases, over_points


def solve(text):
    row, seats, *lines, question = text.split("\n")
    cars = {
        int(number): {colour, brand} for number, colour, brand in re.findall(r"Car (\d+) is the (\w+) (\w+)\.", row)
    }
    inside = {int(number): {name} for name, number in re.findall(r"(\w+) sits in car (\d+)\.", seats)}
    for line in lines:
        if move := re.fullmatch(r"(\w+) moves (.*)\.", line):
            name, where = move.groups()
            place = place_of(where, find_car(name, inside), cars, inside)
            inside[find_car(name, inside)].remove(name)
            inside[place].add(name)
    person = re.fullmatch(r"What is the number of the car that (\w+) is in at the end\?", question)[1]
    return str(find_car(person, inside))


def find_car(who, inside):
    return next(number for number, people in inside.items() if who in people)


def place_of(where, here, cars, inside):
    if result := re.fullmatch(r"to car (\d+)", where):
        return int(result[1])
    if result := re.fullmatch(r"(\d+) cars? to the (left|right)", where):
        return here + int(result[1]) * (1 if result[2] == "right" else -1)
    if result := re.fullmatch(r"to the car that (\w+) is in", where):
        return find_car(result[1], inside)
    if result := re.fullmatch(r"to the car directly to the (left|right) of (\w+)", where):
        return find_car(result[2], inside) + (1 if result[1] == "right" else -1)
    name = re.fullmatch(r"to the (\w+)(?: car)?", where)[1]
    return next(number for number, names in cars.items() if name in names)


@over_points("cars")
def test_the_target_is_the_car_after_all_moves(values, seed):
    check("cars", solve, values, seed)


def test_the_text_has_the_requested_moves_and_confounders():
    case = generate_cases("cars", {"moves": 9, "confounders": 5, "complexity": 4}, count=1)[0]
    lines = case.input.split("\n")[2:-1]
    assert sum(bool(re.match(r"\w+ moves ", line)) for line in lines) == 9
    assert len(lines) == 14


def test_complexity_determines_the_kinds_of_moves():
    def moves(complexity):
        cases = generate_cases("cars", {"complexity": complexity, "moves": 50}, count=10)
        return " ".join(line for case in cases for line in case.input.split("\n")[2:-1])

    assert "left" not in moves(1)
    assert "left" in moves(2)
    assert not re.search(r"moves to the \w+", moves(2))
    assert re.search(r"moves to the \w+", moves(3))
    assert "is in." not in moves(3)
    assert "is in." in moves(4)
