"""The trial of an attempt is kept by a trigger on trials, not by a check at the commit for each attempt."""

import django.db.models.deletion
from django.db import migrations, models

GUARD = """
CREATE FUNCTION runs_app_guard_trials() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    kept bigint := (SELECT t.id FROM removed t JOIN runs_app_attempt a ON a.trial_id = t.id LIMIT 1);
BEGIN
    IF kept IS NOT NULL THEN
        RAISE EXCEPTION 'trial % still has attempts: they go first', kept USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NULL;
END $$;

CREATE TRIGGER attempts_go_first AFTER DELETE ON runs_app_trial
REFERENCING OLD TABLE AS removed FOR EACH STATEMENT EXECUTE FUNCTION runs_app_guard_trials();
"""

UNGUARD = """
DROP TRIGGER attempts_go_first ON runs_app_trial;
DROP FUNCTION runs_app_guard_trials();
"""


class Migration(migrations.Migration):
    dependencies = [("runs_app", "0023_judges_are_drawn_later")]

    operations = [
        migrations.AlterField(
            model_name="attempt",
            name="trial",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="attempt_rows",
                to="runs_app.trial",
            ),
        ),
        migrations.RunSQL(GUARD, UNGUARD),
    ]
