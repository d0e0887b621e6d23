"""The task queue's scheduler is off and hooks are not called, so no row may ask for either.

Rows of these two tables are not signed: whoever can write them could otherwise name code to be run.
"""

from django.db import migrations

SCHEDULE_STAYS_EMPTY = """
DELETE FROM django_q_schedule;
ALTER TABLE django_q_schedule ADD CONSTRAINT django_q_schedule_stays_empty CHECK (false);
"""
TASK_HAS_NO_HOOK = """
UPDATE django_q_task SET hook = NULL WHERE hook IS NOT NULL;
ALTER TABLE django_q_task ADD CONSTRAINT django_q_task_has_no_hook CHECK (hook IS NULL);
"""


class Migration(migrations.Migration):
    dependencies = [
        ("runs_app", "0026_numbers_have_bounds"),
        ("django_q", "0019_alter_task_options_alter_ormq_key_alter_ormq_lock_and_more"),
    ]

    operations = [
        migrations.RunSQL(
            SCHEDULE_STAYS_EMPTY, "ALTER TABLE django_q_schedule DROP CONSTRAINT django_q_schedule_stays_empty"
        ),
        migrations.RunSQL(TASK_HAS_NO_HOOK, "ALTER TABLE django_q_task DROP CONSTRAINT django_q_task_has_no_hook"),
    ]
