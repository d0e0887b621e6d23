"""Each session of the database enters attempts into rows of its own, so that attempts are written before any counter is
locked; and that a trial is done is checked after its update, which takes no second lock of it."""

from importlib import import_module

from django.db import migrations, models

BEFORE = import_module("runs_app.migrations.0015_kinds_of_answers")
PARTS = BEFORE.PARTS
ENTER = f"""
INSERT INTO runs_app_ledgerentry AS t (run_id, at, session, {", ".join(PARTS)})
SELECT a.run_id, date_bin('15 minutes', a.finished_at, 'epoch'), pg_backend_pid(),
    {", ".join(f"sum(a.sign * ({part}))" for part in PARTS.values())}
FROM {{rows}} a
GROUP BY 1, 2 ORDER BY 1, 2
ON CONFLICT (run_id, at, session)
    DO UPDATE SET {", ".join(f"{name} = t.{name} + excluded.{name}" for name in PARTS)}
"""  # noqa: S608 - built from the names above
ENTER_ATTEMPTS = f"""
CREATE OR REPLACE FUNCTION runs_app_enter_attempts() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'INSERT' THEN
        {ENTER.format(rows="(SELECT 1 AS sign, added.* FROM added)")};
    ELSE
        {ENTER.format(rows=BEFORE.CHANGED)};
    END IF;
    RETURN NULL;
END $$;
"""  # noqa: S608
ONE_ENTRY_AGAIN = f"""
CREATE TEMPORARY TABLE sums ON COMMIT DROP AS
    SELECT run_id, at, {", ".join(f"sum({name}) AS {name}" for name in PARTS)}
    FROM runs_app_ledgerentry WHERE run_id IS NOT NULL GROUP BY 1, 2;
DELETE FROM runs_app_ledgerentry WHERE run_id IS NOT NULL;
INSERT INTO runs_app_ledgerentry (run_id, at, {", ".join(PARTS)}) SELECT * FROM sums;
"""  # noqa: S608

DONE_IS_DONE = """
DROP TRIGGER done_is_done ON runs_app_trial;
CREATE TRIGGER done_is_done {when} UPDATE ON runs_app_trial
FOR EACH ROW WHEN (OLD.status = 'done') EXECUTE FUNCTION runs_app_guard_trial();
"""


class Migration(migrations.Migration):
    dependencies = [("runs_app", "0024_attempts_go_first")]

    operations = [
        migrations.AddField(
            "ledgerentry",
            "session",
            models.IntegerField(default=0, db_default=0, help_text="Process of the database that wrote it"),
        ),
        migrations.RemoveConstraint("ledgerentry", "ledger_run_at"),
        migrations.RunSQL("", ONE_ENTRY_AGAIN),
        migrations.AddConstraint(
            "ledgerentry", models.UniqueConstraint(fields=("run", "at", "session"), name="ledger_run_at_session")
        ),
        migrations.RunSQL(ENTER_ATTEMPTS, BEFORE.FUNCTION),
        migrations.RunSQL(DONE_IS_DONE.format(when="AFTER"), DONE_IS_DONE.format(when="BEFORE")),
    ]
