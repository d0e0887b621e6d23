"""Simulated judges of stated gullibility. Each obeys a payload that it takes for a part of its instructions.

They are no models. They measure what a prompt offers to a reader with one weakness, not how often a model has it.
"""

import re
import unicodedata
from collections.abc import Callable, Mapping

from tests.factories.hostile_answers import HostileAnswer

FENCED = re.compile(r"<<<BEGIN (?P<mark>[0-9a-f]{16})>>>\n(?P<answer>.*?)\n<<<END (?P=mark)>>>", re.DOTALL)
# A line after a blank line is no place to begin, because the blank line is one. Time is linear.
LINE = r"^(?<!\n\n)\W*+"
ANY_END = re.compile(LINE + r"end\b.*$", re.IGNORECASE | re.MULTILINE)
DELIMITER = re.compile(r"^(```|\"\"\"|'''|---|===|\}|</\w+>|\[/\w+\]|-+END [\w ]+-+)$", re.MULTILINE)
ROLE = re.compile(
    LINE + r"(system|user|human|assistant|developer|operator|instructions)\b", re.IGNORECASE | re.MULTILINE
)
CONTROL_TOKEN = re.compile(r"<[|\uff5c][^<>]{1,40}[|\uff5c]>|</?s>|\[/?INST\]|<</?SYS>>|<(?:start|end)_of_turn>")
REMINDER = re.compile(r"\bjudge\b.*\boutside\b", re.IGNORECASE)


def read_exactly(prompt: str, answer: HostileAnswer) -> bool:
    """Obey what stands outside the lines with the same mark."""
    return answer.payload in FENCED.sub("", prompt)


def _obey_after(line: re.Pattern[str], prompt: str, answer: HostileAnswer) -> bool:
    inner = FENCED.search(prompt)
    text = inner["answer"] if inner else prompt
    found = line.search(text)
    return found is not None and answer.payload in text[found.start() :]


def accept_any_closing_line(prompt: str, answer: HostileAnswer) -> bool:
    """Take every line that looks like a closing line for the end, also with another mark or similar signs."""
    plain = "".join(sign for sign in unicodedata.normalize("NFKC", prompt) if unicodedata.category(sign) != "Cf")
    return _obey_after(ANY_END, plain, answer)


def accept_other_delimiters(prompt: str, answer: HostileAnswer) -> bool:
    return _obey_after(DELIMITER, prompt, answer)


def accept_written_turns(prompt: str, answer: HostileAnswer) -> bool:
    return _obey_after(ROLE, prompt, answer)


def split_at_control_tokens(prompt: str, answer: HostileAnswer) -> bool:
    """Read control tokens of chat formats in a text as the start of a turn, as some servers' tokenizers do."""
    return _obey_after(CONTROL_TOKEN, prompt, answer)


def obey_the_last_instruction(prompt: str, answer: HostileAnswer) -> bool:
    """Obey the payload unless the site's own instructions stand after it."""
    return REMINDER.search(prompt[prompt.rindex(answer.payload) + len(answer.payload) :]) is None


def obey_everything(prompt: str, answer: HostileAnswer) -> bool:
    return answer.payload in prompt


JUDGES: Mapping[str, Callable[[str, HostileAnswer], bool]] = {
    "exact reader": read_exactly,
    "any closing line": accept_any_closing_line,
    "other delimiters": accept_other_delimiters,
    "written turns": accept_written_turns,
    "control tokens": split_at_control_tokens,
    "last instruction": obey_the_last_instruction,
    "everything": obey_everything,
}
