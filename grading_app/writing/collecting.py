"""From what a model wrote to a draft of texts: set-based, and only what is new."""

from __future__ import annotations

from django.db import connection, transaction

from runs_app.models import Experiment, TextSet
from runs_app.models.work import BLANK

COLLECT = f"""INSERT INTO runs_app_itemtext (text_set_id, item_id, text, trial_id)
SELECT %(texts)s, t.item_id, btrim(t.answer, E' \\t\\r\\n'), t.id
FROM runs_app_trial t JOIN runs_app_run r ON r.id = t.run_id
WHERE r.condition_id = %(condition)s AND t.status = 'done' AND NOT t.truncated AND NOT t.refused
AND NOT {BLANK.format(t="t")}
ORDER BY t.item_id, t.id
ON CONFLICT (text_set_id, item_id) DO NOTHING"""  # noqa: S608 - fixed text


def collect(texts: TextSet) -> int:
    """Take in what its writer wrote since; how many texts. What is empty, cut off or refused stays missing."""
    with transaction.atomic():
        locked: TextSet = TextSet.objects.select_for_update().get(pk=texts.pk)
        if locked.status != TextSet.Status.DRAFT or locked.written_by_id is None:
            return 0
        with connection.cursor() as cursor:
            cursor.execute(COLLECT, {"texts": locked.pk, "condition": locked.written_by_id})
            added = int(cursor.rowcount)
        if added:
            locked.save(update_fields=["content_hash"])
    return added


def collect_all(experiment: Experiment) -> int:
    """Of all drafts that writers in this experiment write for."""
    drafts = TextSet.objects.filter(written_by__experiment=experiment, status=TextSet.Status.DRAFT)
    return sum(collect(texts) for texts in drafts)
