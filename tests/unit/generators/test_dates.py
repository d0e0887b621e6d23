"""The second solver reads the story and counts days with its own calendar: day numbers since year 0, no datetime."""

import re

import pytest

from datasets_app.generators.registry import get_generator
from tests.unit.generators.solving import check, generate_cases, over_points

MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
DATE = r"(\d{4}-\d\d-\d\d|\d\d/\d\d/\d{4}|\d\d\.\d\d\.\d{4}|[A-Z][a-z]+ \d+, \d{4})"
LENGTHS = (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


def is_leap_year(year):
    return year % 4 == 0 and (year % 100 != 0 or year % 400 == 0)


def count_days_in_month(year, month):
    return 29 if month == 2 and is_leap_year(year) else LENGTHS[month - 1]


def count_days_to(year, month, day):
    """Return the number of days since the last day of the year 0."""
    before = year - 1
    days = 365 * before + before // 4 - before // 100 + before // 400
    return days + sum(count_days_in_month(year, other_month) for other_month in range(1, month)) + day


def split_date(number):
    year = number // 366
    while count_days_to(year + 1, 1, 1) <= number:
        year += 1
    month = 1
    while month < 12 and count_days_to(year, month + 1, 1) <= number:
        month += 1
    return year, month, number - count_days_to(year, month, 1) + 1


def get_weekday(number):
    return (number - 1) % 7  # The first day of the year 1 was a Monday.


def read(text):
    if "-" in text:
        return count_days_to(*map(int, text.split("-")))
    if "/" in text:
        month, day, year = map(int, text.split("/"))
    elif "." in text:
        day, month, year = map(int, text.split("."))
    else:
        name, day, year = re.fullmatch(r"(\w+) (\d+), (\d+)", text).groups()
        month = MONTHS.index(name) + 1
    return count_days_to(int(year), int(month), int(day))


def find_today(text):
    if result := re.search(r"Today is the (\d)\w\w (\w+day) of (\w+) (\d+)\.", text):
        nth, weekday, month, year = result.groups()
        days = [count_days_to(int(year), MONTHS.index(month) + 1, day) for day in range(1, 32)]
        return [day for day in days if get_weekday(day) == WEEKDAYS.index(weekday)][int(nth) - 1]
    if result := re.search(r"New Year's Day of (\d+) is (\d+) days? from today", text):
        return count_days_to(int(result[1]), 1, 1) - int(result[2])
    if result := re.search(r"Today is the (\d+)\w\w day of the year (\d+)", text):
        return count_days_to(int(result[2]), 1, 1) + int(result[1]) - 1
    day = read(re.search(DATE, text)[1])
    for pattern, shift in [
        (r"^Yesterday was", lambda _: 1),
        (r"^Tomorrow is", lambda _: -1),
        (r"^The day before yesterday", lambda _: 2),
        (r"moved to today, (\d+) days? earlier", lambda n: -n),
        (r"contract of (\d+) days", lambda n: n - 1),
        (r"exactly (\d+) weeks? old", lambda n: 7 * n),
    ]:
        if result := re.search(pattern, text):
            return day + shift(int(result[1]) if result.lastindex else 0)
    return day


def answer_of(question, today):
    year, month, day = split_date(today)
    numbers = [int(number) for number in re.findall(r"\d+", question)]
    if "first" in question:
        weekday = WEEKDAYS.index(re.search(r"first (\w+day)", question)[1])
        first = next(one for one in range(today + 1, today + 8) if get_weekday(one) == weekday)
        return first + 7 * numbers[0]
    if "after tomorrow" in question:
        return today + 1 + 7 * numbers[0]
    if "last day of the present month" in question:
        return count_days_to(year, month, count_days_in_month(year, month)) - numbers[0]
    direction = -1 if "ago" in question else 1
    if "month" in question:
        month += direction * numbers[0]
        while month > 12:
            year, month = year + 1, month - 12
        while month < 1:
            year, month = year - 1, month + 12
        return count_days_to(year, month, day)
    if "year" in question:
        return count_days_to(year + direction * numbers[0], month, day)
    if "week" in question and "day" in question.replace("today", ""):
        return today + 7 * numbers[0] + numbers[1]
    return today + direction * numbers[0] * (7 if "week" in question else 1)


def solve(text):
    story, form = re.fullmatch(r"(.*) Write the date as (.*)\.", text).groups()
    opening, question = re.fullmatch(r"(.*?\.)((?: What| A parcel).*)", story).groups()
    year, month, day = split_date(answer_of(question, find_today(opening)))
    return {
        "YYYY-MM-DD": f"{year}-{month:02}-{day:02}",
        "MM/DD/YYYY": f"{month:02}/{day:02}/{year}",
        "DD.MM.YYYY": f"{day:02}.{month:02}.{year}",
        "Month D, YYYY": f"{MONTHS[month - 1]} {day}, {year}",
    }[form]


@over_points("dates")
def test_the_target_is_the_date_that_follows_from_the_story(values, seed):
    check("dates", solve, values, seed, count=6)


def test_the_four_tiers_have_36_kinds_of_story():
    result = {
        case.genresult["scenario"]
        for tier in (1, 2, 3, 4)
        for case in generate_cases("dates", {"tier": tier}, count=200)
    }
    assert result == set(range(36))


def test_the_second_calendar_handles_leap_years_and_weekdays():
    assert count_days_to(2000, 3, 1) - count_days_to(2000, 2, 28) == 2
    assert count_days_to(1900, 3, 1) - count_days_to(1900, 2, 28) == 1
    assert WEEKDAYS[get_weekday(count_days_to(1969, 7, 20))] == "Sunday"  # Apollo 11 landed.


@pytest.mark.parametrize("written", ["1969-04-19", "04/19/1969", "4/19/1969", "19.04.1969", "April 19, 1969"])
def test_a_date_is_accepted_in_any_notation(written):
    rule = get_generator("dates").answer
    assert rule.is_correct(rule.read(f"Final Answer: {written}"), "19.04.1969")
    assert not rule.is_correct(rule.read(f"Final Answer: {written}"), "1969-04-20")
