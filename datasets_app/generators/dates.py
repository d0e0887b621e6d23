"""Dates: a date some days, weeks, months or years from today.

Specification. The input has three sentences. The opening determines today's date. The question asks for a date relative
to today. The last sentence names the notation of the answer, which is also the notation of the dates in the text. The
calendar is Gregorian, with years from 1950 to 2049 in the opening. Each of four tiers has three openings and three
questions, which make 36 kinds of story in all:

1. Today's date is stated; the answer is some days away.
2. Today follows from a day near it; the answer is some weeks away.
3. Today is described (the 2nd Tuesday of a month, the days until New Year, the number of the day in its year); the
   answer is some months or years away, on the same day of the month. That day is at most the 28th.
4. Today follows from a story; the answer takes two steps.

ReasonScape publishes the tier, the date formats, the number of kinds of story (36), and the name of one of them
(countdown_to_new_year). Our choices: all stories and tiers. An answer in any of the notations is accepted, because
their separators differ. Free text has a guess chance of 0.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import date, timedelta
from random import Random
from typing import Any, Literal

from datasets_app.generators.answer_rules import AnswerRule
from datasets_app.generators.generator import Case, Edition, Generator, Instructions, Params, declare_param
from datasets_app.generators.vocabulary import PEOPLE, format_ordinal

Format = Literal["ISO", "US", "EU", "LONG"]
MONTHS = (
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)  # fmt: skip
WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
FORMAT_LABELS = {"ISO": "YYYY-MM-DD", "US": "MM/DD/YYYY", "EU": "DD.MM.YYYY", "LONG": "Month D, YYYY"}
FIRST_DAY, LAST_DAY = date(1950, 1, 1), date(2049, 12, 31)
MAX_COMMON_DAY = 28  # The last day that every month has.
DATE_PATTERN = re.compile(
    r"(?P<y1>[0-9]{4})-(?P<m1>[0-9]{1,2})-(?P<d1>[0-9]{1,2})|(?P<m2>[0-9]{1,2})/(?P<d2>[0-9]{1,2})/(?P<y2>[0-9]{4})"
    r"|(?P<d3>[0-9]{1,2})\.(?P<m3>[0-9]{1,2})\.(?P<y3>[0-9]{4})"
    rf"|(?P<n4>(?i:{'|'.join(MONTHS)})) (?P<d4>[0-9]{{1,2}})(?:st|nd|rd|th)?,? (?P<y4>[0-9]{{4}})"
)
Write = Callable[[date], str]
Opening = Callable[[Random, Write], tuple[str, date]]
Question = Callable[[Random, date], tuple[str, date]]


class DatesParams(Params):
    tier: int = declare_param(1, "Tier of the stories, from 1 to 4.", harder="higher", ge=1, le=4)
    format: Format = declare_param("ISO", "Notation of the dates; EU and LONG differ most from ISO.", harder="other")


def write_date(day: date, notation: str) -> str:
    """Return a date in one of the notations."""
    if notation == "ISO":
        return day.isoformat()
    if notation == "LONG":
        return f"{MONTHS[day.month - 1]} {day.day}, {day.year}"
    return f"{day:%m/%d/%Y}" if notation == "US" else f"{day:%d.%m.%Y}"


def _draw_day(rng: Random) -> date:
    return FIRST_DAY + timedelta(days=rng.randint(0, (LAST_DAY - FIRST_DAY).days))


def _format_count(number: int, noun: str = "day") -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _make_opening(template: str, shift: int) -> Opening:
    """Return an opening that names the date `shift` days before today."""

    def opening(rng: Random, write: Write) -> tuple[str, date]:
        day = _draw_day(rng)
        return template.format(d=write(day)), day + timedelta(days=shift)

    return opening


def _open_with_nth_weekday(rng: Random, write: Write) -> tuple[str, date]:
    month = _draw_day(rng).replace(day=1)
    nth, weekday = rng.randint(1, 4), rng.randrange(7)
    today = month + timedelta(days=(weekday - month.weekday()) % 7 + 7 * (nth - 1))
    return f"Today is the {format_ordinal(nth)} {WEEKDAYS[weekday]} of {MONTHS[month.month - 1]} {month.year}.", today


def _open_with_new_year(rng: Random, write: Write) -> tuple[str, date]:
    today = _draw_common_day(rng)
    days = (date(today.year + 1, 1, 1) - today).days
    return f"New Year's Day of {today.year + 1} is {_format_count(days)} from today.", today


def _open_with_day_of_year(rng: Random, write: Write) -> tuple[str, date]:
    today = _draw_common_day(rng)
    return f"Today is the {format_ordinal(today.timetuple().tm_yday)} day of the year {today.year}.", today


def _draw_common_day(rng: Random) -> date:
    while (day := _draw_day(rng)).day > MAX_COMMON_DAY:
        pass
    return day


def _open_with_moved_flight(rng: Random, write: Write) -> tuple[str, date]:
    day, earlier = _draw_day(rng), rng.randint(2, 30)
    person = rng.choice(PEOPLE)
    sentence = f"The flight was moved to today, {_format_count(earlier)} earlier."
    return f"{person} booked a flight for {write(day)}. {sentence}", day - timedelta(days=earlier)


def _open_with_contract(rng: Random, write: Write) -> tuple[str, date]:
    day, length = _draw_day(rng), rng.randint(10, 400)
    text = f"The first day of a contract of {_format_count(length)} was {write(day)}, and today is its last day."
    return text, day + timedelta(days=length - 1)


def _open_with_tree(rng: Random, write: Write) -> tuple[str, date]:
    day, weeks = _draw_day(rng), rng.randint(2, 100)
    age = _format_count(weeks, "week")
    return (
        f"{rng.choice(PEOPLE)} planted a tree on {write(day)}. Today the tree is exactly {age} old.",
        day + timedelta(weeks=weeks),
    )


def _make_days_question(template: str, low: int, high: int, days: int, noun: str) -> Question:
    """Return a question about a date `low` to `high` times `days` days from today."""

    def question(rng: Random, today: date) -> tuple[str, date]:
        number = rng.randint(low, high)
        return template.format(n=_format_count(number, noun)), today + timedelta(days=number * days)

    return question


def _make_months_question(template: str, low: int, high: int, months: int, noun: str) -> Question:
    """Return a question about the same day of the month, `low` to `high` times `months` months from today."""

    def question(rng: Random, today: date) -> tuple[str, date]:
        number = rng.randint(low, high)
        years, month = divmod(today.month - 1 + number * months, 12)
        return template.format(n=_format_count(number, noun)), today.replace(year=today.year + years, month=month + 1)

    return question


def _ask_weeks_and_days(rng: Random, today: date) -> tuple[str, date]:
    weeks, days = rng.randint(1, 9), rng.randint(1, 6)
    text = f"What is the date {_format_count(weeks, 'week')} and {_format_count(days)} from today?"
    return text, today + timedelta(weeks=weeks, days=days)


def _ask_weeks_after_tomorrow(rng: Random, today: date) -> tuple[str, date]:
    weeks = rng.randint(2, 30)
    return f"What is the date {_format_count(weeks, 'week')} after tomorrow?", today + timedelta(weeks=weeks, days=1)


def _ask_weeks_after_weekday(rng: Random, today: date) -> tuple[str, date]:
    weekday, weeks = rng.randrange(7), rng.randint(1, 8)
    start = today + timedelta(days=(weekday - today.weekday() - 1) % 7 + 1)
    text = f"What is the date {_format_count(weeks, 'week')} after the first {WEEKDAYS[weekday]} after today?"
    return text, start + timedelta(weeks=weeks)


def _ask_days_before_month_end(rng: Random, today: date) -> tuple[str, date]:
    days = rng.randint(2, 60)
    next_month = (today.replace(day=1) + timedelta(days=31)).replace(day=1)
    text = f"What is the date {_format_count(days)} before the last day of the present month?"
    return text, next_month - timedelta(days=1 + days)


TIERS: dict[int, tuple[tuple[Opening, ...], tuple[Question, ...]]] = {
    1: (
        (
            _make_opening("Today is {d}.", 0),
            _make_opening("It is {d} today.", 0),
            _make_opening("The calendar on the wall shows today's date, {d}.", 0),
        ),
        (
            _make_days_question("What is the date {n} from today?", 1, 10, 1, "day"),
            _make_days_question("What was the date {n} ago?", 1, 10, -1, "day"),
            _make_days_question("A parcel arrives in {n}. On which date does it arrive?", 11, 40, 1, "day"),
        ),
    ),
    2: (
        (
            _make_opening("Yesterday was {d}.", 1),
            _make_opening("Tomorrow is {d}.", -1),
            _make_opening("The day before yesterday was {d}.", 2),
        ),
        (
            _make_days_question("What is the date {n} from today?", 1, 12, 7, "week"),
            _make_days_question("What was the date {n} ago?", 1, 12, -7, "week"),
            _ask_weeks_and_days,
        ),
    ),
    3: (
        (_open_with_nth_weekday, _open_with_new_year, _open_with_day_of_year),
        (
            _make_months_question("What is the date {n} from today?", 1, 30, 1, "month"),
            _make_months_question("What was the date {n} ago?", 1, 30, -1, "month"),
            _make_months_question("What is the date {n} from today?", 1, 20, 12, "year"),
        ),
    ),
    4: (
        (_open_with_moved_flight, _open_with_contract, _open_with_tree),
        (_ask_weeks_after_tomorrow, _ask_weeks_after_weekday, _ask_days_before_month_end),
    ),
}


def draw(params: DatesParams, rng: Random) -> Case:
    openings, questions = TIERS[params.tier]
    opening, question = rng.randrange(len(openings)), rng.randrange(len(questions))
    opening_text, today = openings[opening](rng, lambda day: write_date(day, params.format))
    question_text, answer = questions[question](rng, today)
    scenario = 9 * (params.tier - 1) + 3 * opening + question
    facts: dict[str, Any] = {"scenario": scenario, "today": today.isoformat(), "answer": answer.isoformat()}
    text = f"{opening_text} {question_text} Write the date as {FORMAT_LABELS[params.format]}."
    return Case(text, write_date(answer, params.format), genresult=facts)


def read_date(text: str) -> str:
    """Return the first date of a text in ISO notation, or the text itself if it contains no date."""
    match = DATE_PATTERN.search(text)
    if match is None:
        return text
    parts = {key[0]: value for key, value in match.groupdict().items() if value is not None}
    month = MONTHS.index(parts["n"].capitalize()) + 1 if "n" in parts else int(parts["m"])
    return f"{int(parts['y']):04}-{month:02}-{int(parts['d']):02}"


def explain(case: Case) -> str:
    """Return today's date, and the days from today to the answer."""
    today, answer = (date.fromisoformat(case.genresult[key]) for key in ("today", "answer"))
    days = (answer - today).days
    distance = f"{_format_count(abs(days))} {'after' if days > 0 else 'before'} today" if days else "today"
    return f"Today is {WEEKDAYS[today.weekday()]}, {write_date(today, 'LONG')}. The date asked for is {distance}."


GENERATOR = Generator(
    name="dates",
    title="Date understanding",
    version=2,
    params=DatesParams,
    draw=draw,
    earlier={1: Edition(draw, is_distinct=False)},
    explain=explain,
    instructions=Instructions("Find the date that the question asks for.", "(a date in the form asked for)"),
    answer=AnswerRule(rf"(?={DATE_PATTERN.pattern})(.{{1,40}}).*", read_date),
)
