"""The newest verdict of a pair replaces the one before; writes of verdicts are counted; panels may have a quorum."""

import django.core.validators
import django.db.models.deletion
from django.db import migrations, models

SUPERSEDED = """
DELETE FROM grading_app_preference p USING grading_app_preference newer
WHERE newer.condition_id = p.condition_id AND newer.trial_a_id = p.trial_a_id AND newer.trial_b_id = p.trial_b_id
AND newer.judged_by_id > p.judged_by_id;
"""

# One a statement, not a row: what is read of a thousand replies is written by one.
COUNTED = """
CREATE FUNCTION grading_app_count_changes() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE grading_app_gradecondition SET changes = changes + 1
    WHERE id IN (SELECT DISTINCT condition_id FROM changed);
    RETURN NULL;
END $$;
""" + "".join(
    f"""
CREATE TRIGGER count_{event.lower()} AFTER {event} ON {table}
REFERENCING {"OLD" if event == "DELETE" else "NEW"} TABLE AS changed
FOR EACH STATEMENT EXECUTE FUNCTION grading_app_count_changes();
"""
    for table in ("grading_app_grading", "grading_app_preference")
    for event in ("INSERT", "UPDATE", "DELETE")
)

UNCOUNTED = """
DROP FUNCTION grading_app_count_changes() CASCADE;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('grading_app', '0008_writers'),
        ('runs_app', '0016_priority'),
    ]

    operations = [
        migrations.RunSQL(SUPERSEDED, migrations.RunSQL.noop),
        migrations.AddField(
            model_name='gradecondition',
            name='changes',
            field=models.PositiveBigIntegerField(db_default=0, default=0, editable=False, help_text='Statements that wrote its verdicts, counted by a trigger: sums over them hold until the next'),
        ),
        migrations.AddField(
            model_name='panel',
            name='quorum',
            field=models.PositiveSmallIntegerField(blank=True, help_text='How many members must have given a score, for the answer to get one. Empty: all members must have judged it, and those whose verdict could not be read have no vote', null=True, validators=[django.core.validators.MinValueValidator(1)]),
        ),
        migrations.AddConstraint(
            model_name='preference',
            constraint=models.UniqueConstraint(fields=('condition', 'trial_a', 'trial_b'), name='preference_once'),
        ),
        migrations.AlterField(
            model_name="preference",
            name="trial_a",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="shown_first",
                to="runs_app.trial",
            ),
        ),
        migrations.AlterField(
            model_name="preference",
            name="trial_b",
            field=models.ForeignKey(
                db_constraint=False,
                on_delete=django.db.models.deletion.CASCADE,
                related_name="shown_second",
                to="runs_app.trial",
            ),
        ),
        migrations.RunSQL(COUNTED, UNCOUNTED),
    ]
