"""Draws of models are pinned in the experiment that they were made for: once it was launched, they never change."""

from django.db import migrations, models

PIN = """
CREATE FUNCTION runs_app_guard_draws() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the draws of experiment % are pinned', OLD.slug
        USING ERRCODE = 'restrict_violation', HINT = 'Duplicate the experiment and draw anew there.';
END $$;

CREATE TRIGGER draws_are_pinned BEFORE UPDATE OF draws ON runs_app_experiment
FOR EACH ROW WHEN (OLD.status <> 'draft' AND OLD.draws IS DISTINCT FROM NEW.draws)
EXECUTE FUNCTION runs_app_guard_draws();
"""
UNPIN = "DROP TRIGGER draws_are_pinned ON runs_app_experiment; DROP FUNCTION runs_app_guard_draws();"


class Migration(migrations.Migration):
    dependencies = [
        ("runs_app", "0017_started_again"),
    ]

    operations = [
        migrations.AddField(
            model_name="experiment",
            name="draws",
            field=models.JSONField(
                blank=True,
                default=dict,
                editable=False,
                help_text="Draws that its models and judges came from, as made",
            ),
        ),
        migrations.RunSQL(PIN, UNPIN),
    ]
