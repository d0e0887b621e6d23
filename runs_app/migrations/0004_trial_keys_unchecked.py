"""The keys of a trial are kept by triggers on what they refer to, not by a check for each row that is inserted."""

import django.db.models.deletion
from django.db import migrations, models

GUARD = """
CREATE FUNCTION runs_app_guard_run() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM runs_app_trial WHERE run_id = OLD.id) THEN
        RAISE EXCEPTION 'run % still has trials: they go first', OLD.id USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN OLD;
END $$;

CREATE TRIGGER trials_go_first BEFORE DELETE ON runs_app_run
FOR EACH ROW EXECUTE FUNCTION runs_app_guard_run();
"""

UNGUARD = """
DROP TRIGGER trials_go_first ON runs_app_run;
DROP FUNCTION runs_app_guard_run();
"""


class Migration(migrations.Migration):
    dependencies = [
        ("datasets_app", "0002_freeze"),
        ("runs_app", "0003_languagemodel_max_output_tokens"),
    ]

    operations = [
        migrations.AlterField(
            model_name="trial",
            name="run",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="trials",
                to="runs_app.run",
            ),
        ),
        migrations.AlterField(
            model_name="trial",
            name="item",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="trials",
                to="datasets_app.item",
            ),
        ),
        migrations.AlterField(
            model_name="trial",
            name="dimension",
            field=models.ForeignKey(
                db_constraint=False,
                db_index=False,
                null=True,
                on_delete=django.db.models.deletion.PROTECT,
                related_name="trials",
                to="runs_app.dimension",
            ),
        ),
        migrations.RunSQL(GUARD, UNGUARD),
    ]
