"""Prompts: rendering a template and an item into the messages for a model.

A prompt is a list of turns, {"role": "system" | "user" | "assistant", "content": "... {{input}} ... {{image}} ..."}.
Substitution is one pass over the template, for declared variables only. Values are never scanned again, so braces in an
item (LaTeX, JSON, code, "{{target}}") stay unchanged. Templates have no calls and no indexing.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, TypedDict

from evalsite.lib.rating_scale import RatingScale
from evalsite.lib.text.hashing import canonical_json, hash_content
from runs_app.pricing.costs import estimate_tokens

AnswerFormat = Literal["text", "rating", "rating_with_reasoning"]
Message = dict[str, Any]

IMAGE = "image"
META = "meta."
# In the order of error messages.
NAMES = (
    "input",
    "choices",
    "key",
    "category",
    f"{META}NAME",
    IMAGE,
    "dimension",
    "dimension_instructions",
    "scale_min",
    "scale_max",
    "scale_labels",
)
ALLOWED = frozenset(NAMES) - {f"{META}NAME"}
SHARED = frozenset({"dimension", "dimension_instructions", "scale_min", "scale_max", "scale_labels"})
MAX_CHARS = 2_000_000  # Of the texts of one rendered request. The longest context windows hold about this much.
MIN_HEAD_TOKENS = 1024  # No provider caches a shorter prefix (Anthropic, "Prompt caching").
UNKNOWN = "unknown variable"
ROLES = ("system", "user", "assistant")
VARIABLE = re.compile(r"\{\{[ \t]*([^\W\d]\w*(?:\.[\w -]*[\w-])?)[ \t]*\}\}")
MAX_ENUM_POINTS = 25  # A schema lists the points of scales up to this length. For longer scales it states the ends.
HINTS: dict[AnswerFormat, str] = {
    "text": "",
    "rating": 'Answer with JSON alone: {"rating": N}, where N is an integer from {{scale_min}} to {{scale_max}}.',
    "rating_with_reasoning": (
        'Answer with JSON alone: {"rating": N, "reasoning": "..."}, where N is an integer from {{scale_min}} to '
        "{{scale_max}} and the reasoning is one or two sentences."
    ),
}


class Turn(TypedDict):
    role: str
    content: str


class PromptError(ValueError):
    """A prompt that cannot be rendered for this item. The message names the turn or variable."""


class RequestTooLong(PromptError):
    """A request that would have more characters than allowed. Nothing was rendered."""


def format_placeholder(name: str) -> str:
    return f"{{{{{name}}}}}"


def find_variables(template: str) -> tuple[str, ...]:
    """Return the names in {{...}}, each once, in the order of their first use."""
    return tuple(dict.fromkeys(VARIABLE.findall(template)))


def uses_variable(prompt: Sequence[Turn], variable: str) -> bool:
    return any(variable in find_variables(turn["content"]) for turn in prompt)


def validate(prompt: Any, allowed: Collection[str] = ALLOWED, listed: Sequence[str] = NAMES) -> list[str]:
    """Return the problems of a prompt, as sentences for its author; empty if it is valid.

    `allowed` are the variables that it may name, besides `meta.<name>`. `listed` are the names that an error lists.
    """
    if not isinstance(prompt, list) or not prompt:
        return ["A prompt is a list of at least one turn."]
    problems = [
        problem for number, turn in enumerate(prompt, 1) for problem in _find_turn_problems(number, turn, allowed)
    ]
    remedy = f" It may name {', '.join(map(format_placeholder, listed))}." if listed else ""
    problems = [f"{problem}{remedy}" if UNKNOWN in problem else problem for problem in problems]
    return problems or _find_order_problems(prompt)


def find_warnings(prompt: Sequence[Turn], *, items_have_text: bool, items_have_images: bool) -> list[str]:
    """Return warnings about a valid prompt that may not suit these items."""
    warnings = []
    if items_have_images and not uses_variable(prompt, IMAGE):
        warnings.append("The items have images, and no turn contains {{image}}: the model will not see them.")
    if items_have_text and not uses_variable(prompt, "input"):
        warnings.append("The items have a text, and no turn contains {{input}}: the model will not see it.")
    if uses_variable(prompt, IMAGE) and not items_have_images:
        warnings.append("The prompt contains {{image}}, and the items have no images: every trial would fail.")
    return warnings


def build_variables(
    *,
    key: str,
    input: str = "",
    category: str = "",
    choices: Sequence[str] = (),
    metadata: Mapping[str, Any] | None = None,
    dimension: str = "",
    dimension_instructions: str = "",
    scale: RatingScale | None = None,
) -> dict[str, str]:
    """Return the values of all variables except `image`, for one item on one dimension. They exclude the target."""
    values = {
        "key": key,
        "input": input,
        "category": category,
        "choices": render_choices(choices),
        "dimension": dimension,
        "dimension_instructions": dimension_instructions,
        "scale_min": str(scale.minimum) if scale else "",
        "scale_max": str(scale.maximum) if scale else "",
        "scale_labels": render_labels(scale) if scale else "",
    }
    return values | {META + name: _to_text(value) for name, value in (metadata or {}).items()}


def render(
    prompt: Sequence[Turn],
    variables: Mapping[str, str],
    image_data_url: str | None = None,
    *,
    hint: str = "",
    salt: str = "",
    max_chars: int = MAX_CHARS,
) -> list[Message]:
    """Return messages in the form of OpenAI's chat API. A turn with {{image}} becomes a list of text and image parts.

    The hint and then the salt end the last user turn, so that the text before them is a cacheable prefix. A blank
    system turn is left out. Raise PromptError for a variable without a value, {{image}} without an image, or any other
    blank turn. Raise RequestTooLong, before rendering, for more than `max_chars` characters.
    """
    if (size := count_rendered_chars(prompt, variables)) > max_chars:
        raise RequestTooLong(f"the request would have {size:,} characters; at most {max_chars:,} are sent")
    last_user = max((at for at, turn in enumerate(prompt) if turn["role"] == "user"), default=-1)
    tail = "".join(f"\n\n{piece}" for piece in (hint, f"[{salt}]" if salt else "") if piece)
    messages = []
    for at, turn in enumerate(prompt):
        content = _render_content(turn["content"], variables, image_data_url, tail if at == last_user else "")
        if content:
            messages.append({"role": turn["role"], "content": content})
        elif turn["role"] != "system":
            raise PromptError(f"turn {at + 1} ({turn['role']}) is blank after rendering")
    return messages


def count_rendered_chars(prompt: Sequence[Turn], variables: Mapping[str, str]) -> int:
    """Return the number of characters of the rendered turns, without rendering them. An image counts as zero."""
    return sum(
        len(turn["content"])
        + sum(len(variables.get(match[1], "")) - len(match[0]) for match in VARIABLE.finditer(turn["content"]))
        for turn in prompt
    )


def substitute(template: str, variables: Mapping[str, str]) -> str:
    """Return the template with each {{name}} replaced, once. Raise PromptError for a name without a value."""

    def get_value(match: re.Match[str]) -> str:
        try:
            return variables[match.group(1)]
        except KeyError:
            raise PromptError(f"{{{{{match.group(1)}}}}} has no value for this item") from None

    return VARIABLE.sub(get_value, template)


def render_choices(choices: Sequence[str]) -> str:
    """Return the lines "A) ...", "B) ...". After Z come AA, AB, as in spreadsheets."""
    return "\n".join(f"{get_choice_letter(at)}) {choice}" for at, choice in enumerate(choices))


def get_choice_letter(at: int) -> str:
    """Return the letter of the choice at an index from 0: A, B, ... Z, AA, AB ..."""
    letters = ""
    at += 1
    while at:
        at, remainder = divmod(at - 1, 26)
        letters = chr(ord("A") + remainder) + letters
    return letters


def render_labels(scale: RatingScale) -> str:
    """Return the labelled points, as "1 = Very low, 7 = Very high"."""
    return ", ".join(f"{point} = {scale.labels[point]}" for point in sorted(scale.labels))


def make_salt(run_id: int | str, item_key: str, dimension: str, sample_idx: int) -> str:
    """Return ten hexadecimal digits that differ between trials but not between attempts of one trial."""
    return hash_content([str(run_id), item_key, dimension, sample_idx])[:10]


def format_hint(answer_format: AnswerFormat, scale: RatingScale | None) -> str:
    """Return the sentence that asks for the answer's form, for models without schemas; "" for a plain text."""
    hint = HINTS[answer_format]
    return substitute(hint, build_variables(key="", scale=_require_scale(scale, answer_format))) if hint else ""


def build_response_format(answer_format: AnswerFormat, scale: RatingScale | None) -> dict[str, Any] | None:
    """Return the strict schema of a rating, for the API's `response_format`, or None if the answer has no schema.

    A rating with reasoning has no schema either: under a strict schema, models give no reasons.
    """
    if answer_format != "rating":
        return None
    schema = {
        "type": "object",
        "properties": {"rating": {"type": "integer"} | _build_bounds(_require_scale(scale, answer_format))},
        "required": ["rating"],
        "additionalProperties": False,
    }
    return {"type": "json_schema", "json_schema": {"name": "rating", "strict": True, "schema": schema}}


def compute_request_hash(
    model: str,
    messages: Sequence[Message],
    parameters: Mapping[str, Any],
    response_format: Mapping[str, Any] | None = None,
) -> str:
    """Return the hash of one rendered request: its content, the model and the settings.

    Render with an image's content hash in place of its data URL, so that the image itself need not be hashed.
    """
    return hash_content(
        {"model": model, "messages": messages, "parameters": parameters, "response_format": response_format}
    )


def mark_head(
    prompt: Sequence[Turn],
    variables: Mapping[str, str],
    messages: Sequence[Message],
    shared: Collection[str] = (),
) -> list[Message]:
    """Return the messages with a mark for the provider's cache, at the end of the part that all items share.

    `messages` were rendered with `variables`. `shared` names the variables, besides those of the dimension, that are
    equal for all items. Texts are split at the mark and otherwise unchanged. No mark is set if no turn depends on the
    item, or if the shared part is too short for any cache.
    """
    rendered_turns = [
        turn for turn in prompt if turn["role"] != "system" or substitute(turn["content"], variables).strip()
    ]
    at, offset = _find_end_of_head(rendered_turns, SHARED | set(shared))
    if at is None:
        return list(messages)
    head = substitute(rendered_turns[at]["content"][:offset], variables)
    marked = [*messages]
    if head.strip():
        marked[at] = messages[at] | {"content": _split_at_mark(messages[at]["content"], len(head))}
    elif at:
        previous = messages[at - 1]
        marked[at - 1] = previous | {"content": _split_at_mark(previous["content"], len(previous["content"]))}
    texts = [message["content"] for message in messages[:at]] + [head]
    return marked if estimate_tokens("".join(texts)) >= MIN_HEAD_TOKENS else list(messages)


def _find_end_of_head(prompt: Sequence[Turn], shared: Collection[str]) -> tuple[int | None, int]:
    """Return the index of the turn with the first variable that differs between items, and the variable's offset."""
    for at, turn in enumerate(prompt):
        for match in VARIABLE.finditer(turn["content"]):
            if match.group(1) not in shared:
                return at, match.start()
    return None, 0


def _split_at_mark(content: str | list[Message], length: int) -> list[Message]:
    """Return the content as parts, with a mark after `length` characters, which are all in the first text."""
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    text = parts[0]["text"]
    head = {"type": "text", "text": text[:length], "cache_control": {"type": "ephemeral"}}
    rest = [{"type": "text", "text": text[length:]}] if text[length:].strip() else []
    return [head, *rest, *parts[1:]]


def _find_turn_problems(number: int, turn: Any, allowed: Collection[str]) -> list[str]:
    if not isinstance(turn, dict) or set(turn) != {"role", "content"}:
        return [f'Turn {number} must be {{"role": ..., "content": ...}} and nothing else.']
    role, content = turn["role"], turn["content"]
    if role not in ROLES:
        return [f"Turn {number}: the role must be one of {', '.join(ROLES)}, not {role!r}."]
    if not isinstance(content, str) or not content.strip():
        return [f"Turn {number}: the content must not be blank."]
    names = find_variables(content)
    problems = [
        _describe_variable_problem(number, name, content)
        for name in names
        if name not in allowed and not name.startswith(META)
    ]
    if IMAGE in names and role != "user":
        problems.append(f"Turn {number}: only a user turn can show {{{{image}}}}, not a turn of role {role}.")
    return problems


def _describe_variable_problem(number: int, name: str, content: str) -> str:
    """Return the problem with its turn and, in a text of several lines, the line of its first use."""
    start = next(match.start() for match in VARIABLE.finditer(content) if match.group(1) == name)
    line = f", line {content.count(chr(10), 0, start) + 1}" if "\n" in content else ""
    if name == "target":
        return f"Turn {number}{line}: {{{{target}}}} would show the model the right answer."
    return f"Turn {number}{line}: {UNKNOWN} {format_placeholder(name)}."


def _find_order_problems(prompt: Sequence[Turn]) -> list[str]:
    problems = []
    if any(turn["role"] == "system" for turn in prompt[1:]):
        problems.append("Only the first turn may be a system turn.")
    if prompt[-1]["role"] != "user":
        problems.append("The last turn must be a user turn: the model answers it.")
    images = sum(name == IMAGE for turn in prompt for name in VARIABLE.findall(turn["content"]))
    if images > 1:
        problems.append(f"{{{{image}}}} may occur only once in a prompt, not {images} times.")
    return problems


def _render_content(
    template: str, variables: Mapping[str, str], image_data_url: str | None, tail: str
) -> str | list[Message]:
    texts = [substitute(piece, variables) for piece in _split_at_image(template)]
    if len(texts) == 1:
        return texts[0] + tail if texts[0].strip() else ""
    if image_data_url is None:
        raise PromptError("{{image}} has no value: this item has no image")
    texts[-1] = texts[-1] + tail if texts[-1].strip() else tail.lstrip("\n")
    image = {"type": "image_url", "image_url": {"url": image_data_url}}
    parts: list[Message] = []
    for at, text in enumerate(texts):
        parts += [image] if at else []
        parts += [{"type": "text", "text": text}] if text.strip() else []
    return parts


def _split_at_image(template: str) -> list[str]:
    pieces, start = [], 0
    for match in VARIABLE.finditer(template):
        if match.group(1) == IMAGE:
            pieces.append(template[start : match.start()])
            start = match.end()
    return [*pieces, template[start:]]


def _build_bounds(scale: RatingScale) -> dict[str, Any]:
    if scale.maximum - scale.minimum < MAX_ENUM_POINTS:
        return {"enum": list(range(scale.minimum, scale.maximum + 1))}
    return {"minimum": scale.minimum, "maximum": scale.maximum}


def _require_scale(scale: RatingScale | None, answer_format: AnswerFormat) -> RatingScale:
    if scale is None:
        raise PromptError(f'the answer format "{answer_format}" needs a dimension with a scale')
    return scale


def _to_text(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else canonical_json(value)
