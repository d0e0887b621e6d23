"""Every form of every page accepts any value of one field, with default values in the others."""

import io
from itertools import islice
from urllib.parse import urlsplit

import pytest
from django.test.client import BOUNDARY, MULTIPART_CONTENT, encode_multipart

from tests.system.fuzz import hostile
from tests.system.fuzz.conftest import OUTSIDERS
from tests.system.fuzz.pages import parse_page

pytestmark = [pytest.mark.django_db, pytest.mark.ignore_template_errors]  # Templates of Django use undefined variables.
A_TABLE = b"id,question,answer\na,What?,4\nb,Why?,5\n"


def find_forms(attack, addresses):
    """Return (role, form) for each POST form of each page, once for each address and set of fields."""
    forms = {}
    for role, address in addresses:
        answer = attack.get(role, address)
        page_forms = parse_page(address, answer.text).forms if answer.is_page else []
        for form in [variant for page_form in page_forms for variant in page_form.variants()]:
            action = urlsplit(form.action).path
            if form.method == "post" and "/logout/" not in action:
                forms.setdefault((action, tuple(form.names)), (role, form))
    return list(forms.values())


def encode_fields(fields):
    return "&".join(f"{hostile.encode(name)}={hostile.encode(value)}" for name, value in fields).encode()


def send(attack, role, form, fields):
    action = urlsplit(form.action)
    address = action.path + (f"?{action.query}" if action.query else "")
    if not form.files:
        return attack.post(role, address, encode_fields(fields))
    table = io.BytesIO(A_TABLE)
    table.name = "items.csv"
    data = {
        name: [value.encode("utf-8", "replace").decode() for other, value in fields if other == name]
        for name, _ in fields
    }
    return attack.post(role, address, encode_multipart(BOUNDARY, {**data, form.files[0]: table}), MULTIPART_CONTENT)


def test_no_field_value_causes_a_server_error(attack, addresses, requests_wanted, seed, chance):
    forms = find_forms(attack, addresses)
    targets = [(role, form, name) for role, form in forms for name in form.names]
    assert len(targets) > 300, "the pages' forms were not found"
    for role, form in forms:
        send(attack, role, form, form.fields)
    cases = hostile.order_in_rounds(targets, hostile.VALUES, seed)
    for number, (role, form, name), value in islice(cases, requests_wanted):
        values = [value] if number % 4 else chance.choice([[value], [value, value], []])
        send(
            attack,
            role if number % 3 == 0 else chance.choice([role, role, *OUTSIDERS]),
            form,
            form.with_value(name, values),
        )
    print(f"\n{len(forms)} forms with {len(targets)} fields, {attack.report()}")
    assert not attack.findings, attack.report()
