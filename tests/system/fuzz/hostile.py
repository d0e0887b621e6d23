"""Hostile values, and a random order of targets and values that depends only on a seed."""

from __future__ import annotations

import random
from itertools import zip_longest
from urllib.parse import quote_from_bytes

NUMBERS = [
    "-1",
    "0",
    "-0",
    "00",
    "1.5",
    "1e400",
    "-1e308",
    "nan",
    "inf",
    "-Infinity",
    "0x10",
    "1_000",
    " 1 ",
    "+1",
    "2147483647",
    "2147483648",
    "-2147483649",
    "9223372036854775808",
    "-9223372036854775809",
    "9" * 30,
    "9" * 5000,
    "٣",
    "١٢٣٤٥٦٧٨٩٠",
    "²",
    "１２",
    "Ⅷ",
    "1,000",
    "1e5",
    "1E-400",
    "True",
]
TEXTS = [
    "",
    " ",
    "\n",
    "\r\n",
    "\t",
    "\x00",
    "a\x00b",
    "\x1b[2J\x1b[31mred",
    "\u202eevil\u202c",
    "\ufeff",
    "\u2028",
    "\ud800",
    "\udfff\ud800",
    "x" * 100_000,
    "😀" * 3000,
    "e" + "\u0301" * 2000,
    "<script>alert(1)</script>",
    "\"'><img src=x>",
    "' OR 1=1 --",
    "%",
    "_",
    "\\",
    "%00",
    "%ff%fe",
    "../../../../etc/passwd",
    "/dev/null",
    "http://169.254.169.254/",
    "//evil.example",
    "javascript:alert(1)",
    "{{input}}" * 400,
    "{{",
    "{% debug %}",
    "{0.__class__}",
    "%s%n",
    "=1+1",
    "(a+)+$" * 30,
    "[",
    "(?P<",
    "None",
    "null",
    "admin",
    "pk",
    "__class__",
    "id__in",
    "-id",
    ",",
    ";",
    "|",
    "a,b,c",
    "a=b&c=d",
    "0001-01-01",
    "9999-12-31",
    "2026-13-45",
    "9999-12-31T23:59:60Z",
    "2026-02-30T25:61",
    "ſ",
    "İ",
    "ﬀ",
    "\U000e0041",
    "\x7f",
    "\x85",
]
STRUCTURES = [
    "[]",
    "{}",
    "[" * 3000,
    "[" * 3000 + "]" * 3000,
    '{"a":' * 3000 + "1" + "}" * 3000,
    '{"a": ' + "9" * 5000 + "}",
    '["\\ud800"]',
    '{"\\u0000": "\\u0000"}',
    '{"a": NaN, "b": -Infinity}',
    '{"a": 1e999}',
    "[1, 2",
    '"text"',
    "3",
    '{"a": {"b": [null, true, 1.5, {}]}}',
    "[[[[]]]]",
    "a: &a [*a, *a]",
    "- " * 2000,
    "? " * 500,
    "!!python/object/apply:os.system [id]",
    '[{"role": "user", "content": null}]',
    '[{"role": "user"}]',
    '[{"role": 1, "content": 2}]',
    "[null]",
    '{"role": "user"}',
]
BYTE_CODECS = ["base64", "rot13", "zip", "hex", "bz2"]  # Codecs of Python that do not decode text.
VALUES = [*NUMBERS, *TEXTS, *STRUCTURES]
MEDIA_TYPES = [
    "application/x-www-form-urlencoded; charset=utf-16",
    "application/x-www-form-urlencoded; charset=unicode_escape",
    "application/x-www-form-urlencoded; charset=utf-7",
    "application/x-www-form-urlencoded; charset=latin-1",
    "application/x-www-form-urlencoded; charset=no-such",
    "multipart/form-data",
    "multipart/form-data; boundary=",
    "multipart/form-data; boundary=x; charset=utf-16",
    "multipart/form-data; boundary=" + "b" * 5000,
    "application/json",
    "text/plain",
    "",
    "x",
    "a/b; c",
]


def encode(value: str) -> str:
    """Percent-encode any text, half surrogate pairs too."""
    return quote_from_bytes(value.encode("utf-8", "surrogatepass"))


def list_query_shapes(name: str, value: str) -> list[str]:
    """Return spellings of one parameter: plain, repeated, in brackets, and as invalid UTF-8."""
    name, value = encode(name), encode(value)
    return [
        f"{name}={value}",
        f"{name}={value}&{name}=1&{name}={value}",
        f"{name}[]={value}&{name}[0]=1",
        f"{name}=%ff%fe{value}%c3",
        f"{name}={value}&" + "&".join(f"z{number}=1" for number in range(300)),
    ]


def order_in_rounds(targets: list, values: list, seed: int) -> list[tuple]:
    """Return (round, target, value) for every pair. Each round has one value for each target."""
    rng = random.Random(seed)
    columns = []
    for target in targets:
        shuffled = list(values)
        rng.shuffle(shuffled)
        columns.append([(target, value) for value in shuffled])
    rng.shuffle(columns)
    rounds = zip_longest(*columns)
    return [(number, *pair) for number, row in enumerate(rounds) for pair in row if pair is not None]
