"""Template tags escape names and model output."""

from html.parser import HTMLParser

import pytest
from django.template import engines

from evalsite.lib.text.diff import compare_lines

PAYLOADS = [
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "' onmouseover='alert(1)",
    "</pre></div><svg onload=alert(1)>",
    "{{ settings.SECRET_KEY }}{% now 'Y' %}",
]
CALLS = [
    "{% status_badge value %}",
    "{% status_badge 'done' label=value title=value %}",
    "{% icon 'lock' label=value %}",
    "{% progress 1 2 3 4 label=value %}",
    "{% breadcrumbs value value value %}",
    "{% tab value value 3 %}",
    "{% turn value value image_url=value image_alt=value note=value %}",
    "{% empty_state value action_url=value action_label=value second_url=value second_label=value %}{{ value }}"
    "{% endempty_state %}",
    "{% notice 'hold' role=value %}{{ value }}{% endnotice %}",
    "{% action value value submit_label=value name=value value=value %}{{ value }}{% endaction %}",
    "{% include 'tables/keyset.html' with previous_url=value next_url=value count_label=value %}",
]
TAGS = "span svg use div ul li b rect nav ol a section img pre p button form input details summary"
ALLOWED = set(TAGS.split())


class Reader(HTMLParser):
    """Return the elements, attribute names and texts that a browser would parse."""

    def __init__(self):
        super().__init__()
        self.elements, self.attributes, self.texts = set(), set(), []

    def handle_starttag(self, tag, attrs):
        self.elements.add(tag)
        for name, value in attrs:
            self.attributes.add(name)
            self.texts.append(value or "")

    def handle_data(self, data):
        self.texts.append(data)


def render(template, **context):
    return engines["django"].from_string(template).render(context)


def normalize_text(text):
    """Return the text without the spaces and capital with which a status word is shown."""
    return text.lower().replace("_", " ")


@pytest.mark.parametrize("payload", PAYLOADS)
@pytest.mark.parametrize("call", CALLS)
def test_a_payload_stays_text(call, payload):
    reader = Reader()
    reader.feed(render(call, value=payload))
    assert reader.elements <= ALLOWED
    assert "script" not in reader.elements
    assert not {name for name in reader.attributes if name.startswith("on")}
    assert normalize_text(payload) in normalize_text("".join(reader.texts))


def test_an_answer_keeps_its_first_newline_and_its_spaces():
    html = render("{% turn 'assistant' text %}", text="\n\n  7  \n")
    inside = html.split('<pre class="turn-text">')[1].split("</pre>")[0]
    assert inside == "\n" + "\n\n  7  \n", "a parser drops one newline after <pre>, which must be ours"


def test_an_icon_that_does_not_exist_is_refused():
    with pytest.raises(ValueError, match="no icon is called 'nope'"):
        render("{% icon 'nope' %}")


def test_an_icon_without_a_label_is_hidden_from_screen_readers():
    assert 'aria-hidden="true"' in render("{% icon 'lock' %}")
    assert 'role="img" aria-label="Frozen"' in render("{% icon 'lock' label='Frozen' %}")


@pytest.mark.parametrize("tag", ["notice 'hold'", "empty_state 'None'", "action '/' 'Go'"])
def test_markup_of_the_template_inside_a_block_tag_is_kept(tag):
    inside = "{% " + tag + " %}Read <strong>{{ value }}</strong>.{% end" + tag.split()[0] + " %}"
    assert "Read <strong>&lt;b&gt;</strong>." in render(inside, value="<b>")
    assert "<p></p>" not in render("{% " + tag + " %}{% end" + tag.split()[0] + " %}")


def test_pieces_of_a_text_comparison_are_marked_escaped_and_joined_without_spaces():
    (row,) = compare_lines("Be <i>fair", "Be <i>strict")
    sides = render("{% text_diff row.before 'del' %}|{% text_diff row.after 'ins' %}", row=row)
    assert sides == "Be &lt;i&gt;<del>fair</del>|Be &lt;i&gt;<ins>strict</ins>"
