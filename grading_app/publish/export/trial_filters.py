"""The filters of exported tables, as SQL conditions."""

from __future__ import annotations

from collections.abc import Mapping

# Each filter reads only the trial (t), so it applies to the keys as well as to the rows. The names are those of the
# trial list, so a filtered list can be exported as it is shown. `Extract.of` turns names of waves and dimensions into
# their keys.
_ANNOTATED = """EXISTS (SELECT FROM runs_app_annotation fa WHERE NOT fa.removed AND fa.kind = '{kind}' AND {text}
    (fa.trial_id = t.id OR fa.trial_id IS NULL AND fa.item_id = t.item_id))"""
FILTERS: Mapping[str, str] = {
    "status": "t.status = %(status)s",
    "condition": """t.run_id IN (SELECT fr.id FROM runs_app_run fr JOIN runs_app_condition fc ON fc.id = fr.condition_id
        WHERE %(condition)s IN (fc.condition_id, fc.id::text))""",
    "wave": "t.run_id IN (SELECT fr.id FROM runs_app_run fr WHERE fr.wave_id::text = %(wave)s)",
    "run": "t.run_id::text = %(run)s",
    "item": "t.item_id IN (SELECT id FROM datasets_app_item WHERE key = %(item)s)",
    "category": "t.item_id IN (SELECT id FROM datasets_app_item WHERE category = %(category)s)",
    "point": """t.item_id IN (SELECT fi.id FROM datasets_app_item fi WHERE fi.metadata ? 'params' AND NOT EXISTS (
        SELECT FROM jsonb_each_text(%(point)s::jsonb) AS wanted (name, value)
        WHERE jsonb_extract_path_text(fi.metadata, 'params', wanted.name) IS DISTINCT FROM wanted.value))""",
    "dimension": "t.dimension_id::text = %(dimension)s",
    "rating": "t.rating::text = %(rating)s",
    "error": "t.error_class = %(error)s",
    "empty": "(t.status = 'done' AND t.answer = '')::text = %(empty)s",
    "unparsed": "(t.parse_error <> '')::text = %(unparsed)s",
    "truncated": "t.truncated::text = %(truncated)s",
    "refused": "t.refused::text = %(refused)s",
    "from_cache": "t.from_cache::text = %(from_cache)s",
    "contains": "strpos(lower(t.answer), lower(%(contains)s)) > 0",
    "flag": f"({_ANNOTATED.format(kind='flag', text='')})::text = %(flag)s",
    "tag": _ANNOTATED.format(kind="tag", text=r"fa.text = regexp_replace(lower(btrim(%(tag)s)), '\s+', '-', 'g') AND"),
    "note": _ANNOTATED.format(kind="note", text="strpos(lower(fa.text), lower(%(note)s)) > 0 AND"),
}
