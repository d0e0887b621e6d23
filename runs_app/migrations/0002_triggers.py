"""The triggers of runs_app, declared in runs_app/triggers.sql, and constraints on the tables of the task queue."""

from django.db import migrations

from evalsite.lib.triggers import InstallTriggers

# The queue's scheduler is off, and no hook is called. Rows of these tables are not signed: anybody who can write to the
# database could name code in them that the queue would run.
QUEUE_RUNS_ONLY_TASKS = """
ALTER TABLE django_q_schedule ADD CONSTRAINT django_q_schedule_stays_empty CHECK (false);
ALTER TABLE django_q_task ADD CONSTRAINT django_q_task_has_no_hook CHECK (hook IS NULL);
"""
QUEUE_RUNS_ANYTHING = """
ALTER TABLE django_q_task DROP CONSTRAINT django_q_task_has_no_hook;
ALTER TABLE django_q_schedule DROP CONSTRAINT django_q_schedule_stays_empty;
"""


class Migration(migrations.Migration):
    dependencies = [
        ("runs_app", "0001_initial"),
        ("lib", "0001_initial"),
        ("django_q", "0019_alter_task_options_alter_ormq_key_alter_ormq_lock_and_more"),
    ]
    operations = [
        InstallTriggers("runs_app", "08b99d448af9"),
        migrations.RunSQL(QUEUE_RUNS_ONLY_TASKS, QUEUE_RUNS_ANYTHING),
    ]
