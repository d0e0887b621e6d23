"""People judge answers by a rubric: what a rating may then be, and that the rubric stays."""

import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

GUARD_RATING = """
CREATE OR REPLACE FUNCTION grading_app_guard_rating() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    state text;
    low float8;
    high float8;
    any_number boolean;
BEGIN
    IF TG_OP = 'DELETE' THEN
        IF OLD.value IS NOT NULL THEN
            RAISE EXCEPTION 'rating % was given: it stays', OLD.id USING ERRCODE = 'restrict_violation';
        END IF;
        RETURN OLD;
    END IF;
    IF TG_OP = 'UPDATE'
        AND (OLD.assignment_id, OLD.item_id, OLD.rival_id, OLD.dimension_id, OLD.criterion, OLD.kind, OLD.position)
        IS DISTINCT FROM
        (NEW.assignment_id, NEW.item_id, NEW.rival_id, NEW.dimension_id, NEW.criterion, NEW.kind, NEW.position) THEN
        RAISE EXCEPTION 'rating % keeps its rater, item, dimension and place', OLD.id
            USING ERRCODE = 'restrict_violation';
    END IF;
    -- FOR SHARE: a queue that is being closed waits for this rating, or this rating sees that it is closed.
    SELECT q.status INTO state FROM grading_app_ratingqueue q JOIN grading_app_raterassignment a ON a.queue_id = q.id
    WHERE a.id = NEW.assignment_id FOR SHARE OF q;
    IF state <> 'open' THEN
        RAISE EXCEPTION 'the queue of rating % is not open', NEW.id USING ERRCODE = 'restrict_violation';
    END IF;
    IF NEW.value IS NOT NULL THEN
        -- Of the dimension, or of the rubric: a criterion is 0 or 1, a label its number, of two answers 0, 1 or 2.
        SELECT coalesce(d.scale_min, CASE r.kind WHEN 'score' THEN r.scale_min WHEN 'label' THEN 1 ELSE 0 END),
            coalesce(d.scale_max, CASE r.kind WHEN 'score' THEN r.scale_max WHEN 'criteria' THEN 1
                WHEN 'label' THEN jsonb_array_length(r.labels) WHEN 'pairwise' THEN 2 END),
            d.id IS NULL AND r.kind = 'score'
        INTO low, high, any_number
        FROM grading_app_raterassignment a JOIN grading_app_ratingqueue q ON q.id = a.queue_id
        LEFT JOIN runs_app_dimension d ON d.id = NEW.dimension_id LEFT JOIN grading_app_rubric r ON r.id = q.rubric_id
        WHERE a.id = NEW.assignment_id;
        IF (NEW.value BETWEEN low AND high AND (any_number OR NEW.value = trunc(NEW.value))) IS NOT TRUE THEN
            RAISE EXCEPTION 'rating % is not on the scale from % to %', NEW.value, low, high
                USING ERRCODE = 'check_violation';
        END IF;
    END IF;
    RETURN NEW;
END $$;
"""

GUARD_RUBRIC = """
CREATE FUNCTION grading_app_guard_queue_rubric() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM 1 FROM grading_app_rubric WHERE id = NEW.rubric_id AND status = 'draft' FOR SHARE;
    IF FOUND THEN
        RAISE EXCEPTION 'queue % asks by a rubric that is a draft: approve it first', NEW.name
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER rubric_is_frozen BEFORE INSERT OR UPDATE ON grading_app_ratingqueue
FOR EACH ROW WHEN (NEW.status <> 'draft' AND NEW.rubric_id IS NOT NULL)
EXECUTE FUNCTION grading_app_guard_queue_rubric();
"""

LET_GO = """
DROP TRIGGER rubric_is_frozen ON grading_app_ratingqueue;
DROP FUNCTION grading_app_guard_queue_rubric();
"""


class Migration(migrations.Migration):

    dependencies = [
        ('datasets_app', '0003_items_in_order'),
        ('grading_app', '0010_comparisons'),
        ('runs_app', '0016_priority'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.RemoveConstraint(
            model_name='ratedanswer',
            name='answer_once_a_queue',
        ),
        migrations.RemoveConstraint(
            model_name='rating',
            name='rating_once',
        ),
        migrations.AddField(
            model_name='gradecondition',
            name='assignment',
            field=models.OneToOneField(help_text='Of a person: who, in which queue', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='grade_condition', to='grading_app.raterassignment'),
        ),
        migrations.AddField(
            model_name='ratedanswer',
            name='rival',
            field=models.ForeignKey(help_text='The other one of two', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='runs_app.trial'),
        ),
        migrations.AddField(
            model_name='rating',
            name='criterion',
            field=models.CharField(blank=True, db_default='', default='', help_text='Of the rubric that the queue names', max_length=80),
        ),
        migrations.AddField(
            model_name='rating',
            name='rival',
            field=models.ForeignKey(help_text='Of two answers the one shown second', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='runs_app.trial'),
        ),
        migrations.AddField(
            model_name='ratingqueue',
            name='rubric',
            field=models.ForeignKey(blank=True, help_text='In place of dimensions: people say of each answer what a judge by this rubric says', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='rating_queues', to='grading_app.rubric'),
        ),
        migrations.AddField(
            model_name='ratingqueue',
            name='text_set',
            field=models.ForeignKey(blank=True, help_text='Whose texts raters read where the rubric says {{item_rubric}}', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='rating_queues', to='runs_app.textset', verbose_name='item rubrics'),
        ),
        migrations.AlterField(
            model_name='gradecondition',
            name='kind',
            field=models.CharField(choices=[('rule', 'A rule'), ('judge', 'A judge'), ('panel', 'A panel of judges'), ('adjudicated', 'Adjudicated by people'), ('person', 'A person by a rubric')], db_default='rule', default='rule', max_length=12),
        ),
        migrations.AlterField(
            model_name='preference',
            name='judged_by',
            field=models.OneToOneField(db_constraint=False, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='preference', to='runs_app.trial'),
        ),
        migrations.AlterField(
            model_name='rating',
            name='dimension',
            field=models.ForeignKey(null=True, on_delete=django.db.models.deletion.PROTECT, related_name='ratings', to='runs_app.dimension'),
        ),
        migrations.AlterField(
            model_name='rating',
            name='value',
            field=models.FloatField(null=True),
        ),
        migrations.AlterField(
            model_name='ratingqueue',
            name='dimensions',
            field=models.ManyToManyField(blank=True, related_name='rating_queues', to='runs_app.dimension'),
        ),
        migrations.AddConstraint(
            model_name='ratedanswer',
            constraint=models.UniqueConstraint(fields=('queue', 'trial', 'rival'), name='answer_once_a_queue', nulls_distinct=False),
        ),
        migrations.AddConstraint(
            model_name='rating',
            constraint=models.UniqueConstraint(fields=('assignment', 'item', 'trial', 'rival', 'dimension', 'criterion'), name='rating_once', nulls_distinct=False),
        ),
        migrations.AddConstraint(
            model_name='ratingqueue',
            constraint=models.CheckConstraint(condition=models.Q(('rubric', None), ('subject', 'answers'), _connector='OR'), name='rating_queue_rubric_of_answers'),
        ),
        migrations.RunSQL(GUARD_RATING, migrations.RunSQL.noop),
        migrations.RunSQL(GUARD_RUBRIC, LET_GO),
    ]
