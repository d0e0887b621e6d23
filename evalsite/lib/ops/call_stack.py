"""Room for the frames of Python's calls.

CPython keeps the frames of a thread in pieces of 16 kB, about eighty calls each. A call that needs the next piece asks
the operating system for it, and gives it back when it returns. A loop whose calls cross this border takes some ten
microseconds more for each of them. Which loop that is depends on the depth at which a page or a task happens to run.
Releases of CPython 3.13 and 3.14 from 2026 on keep one piece instead (gh-142183); 3.11 and 3.12 do not.
"""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

WORDS = 1 << 16  # A frame of this size gets a piece of 1 MiB, and leaves half of it: more than 2,000 calls.

P = ParamSpec("P")
R = TypeVar("R")


def call_with_room(function: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R:
    """Call the function with room for 2,000 nested calls. Only memory that they use is taken."""
    return function(*args, **kwargs)


call_with_room.__code__ = call_with_room.__code__.replace(co_stacksize=WORDS)
