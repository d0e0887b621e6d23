"""People rate answers as well as items: which ones a queue asks about, and what the database refuses to change."""

import django.core.validators
import django.db.models.deletion
from django.conf import settings
from django.db import migrations, models

GUARD = """
CREATE FUNCTION grading_app_guard_queue_part() RETURNS trigger LANGUAGE plpgsql AS $$
-- The argument is the column that names the queue.
DECLARE
    state text;
    part jsonb := CASE WHEN TG_OP = 'DELETE' THEN to_jsonb(OLD) ELSE to_jsonb(NEW) END;
BEGIN
    SELECT status INTO state FROM grading_app_ratingqueue WHERE id = (part ->> TG_ARGV[0])::bigint FOR SHARE;
    IF TG_OP = 'UPDATE' OR state <> 'draft' THEN
        RAISE EXCEPTION 'a queue that was open keeps the answers it asks about' USING ERRCODE = 'restrict_violation';
    END IF;
    IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER frozen BEFORE INSERT OR UPDATE OR DELETE ON grading_app_ratingqueue_conditions
FOR EACH ROW EXECUTE FUNCTION grading_app_guard_queue_part('ratingqueue_id');

CREATE TRIGGER frozen BEFORE INSERT OR UPDATE OR DELETE ON grading_app_ratedanswer
FOR EACH ROW EXECUTE FUNCTION grading_app_guard_queue_part('queue_id');

CREATE FUNCTION grading_app_guard_rated_answer() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'UPDATE' AND OLD.trial_id IS DISTINCT FROM NEW.trial_id THEN
        RAISE EXCEPTION 'rating % keeps its answer', OLD.id USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER keeps_answer BEFORE UPDATE ON grading_app_rating
FOR EACH ROW EXECUTE FUNCTION grading_app_guard_rated_answer();
"""

LET_GO = """
DROP TRIGGER keeps_answer ON grading_app_rating;
DROP FUNCTION grading_app_guard_rated_answer();
DROP TRIGGER frozen ON grading_app_ratedanswer;
DROP TRIGGER frozen ON grading_app_ratingqueue_conditions;
DROP FUNCTION grading_app_guard_queue_part();
"""


class Migration(migrations.Migration):

    dependencies = [
        ('datasets_app', '0003_items_in_order'),
        ('grading_app', '0004_judges'),
        ('runs_app', '0009_stages'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='RatedAnswer',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(max_length=10)),
            ],
            options={
                'ordering': ['pk'],
            },
        ),
        migrations.RemoveConstraint(
            model_name='rating',
            name='rating_once',
        ),
        migrations.RemoveConstraint(
            model_name='ratingqueue',
            name='rating_queue_of_items',
        ),
        migrations.AddField(
            model_name='rating',
            name='trial',
            field=models.ForeignKey(help_text='Whose answer to the item is rated', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='ratings', to='runs_app.trial'),
        ),
        migrations.AddField(
            model_name='ratingqueue',
            name='answers_each',
            field=models.PositiveSmallIntegerField(default=1, help_text="How many of a condition's answers to an item are drawn", validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(1000)], verbose_name='answers each'),
        ),
        migrations.AddField(
            model_name='ratingqueue',
            name='conditions',
            field=models.ManyToManyField(blank=True, help_text='Whose answers; none chosen: all of them', related_name='rating_queues', to='runs_app.condition'),
        ),
        migrations.AddField(
            model_name='ratingqueue',
            name='experiment',
            field=models.ForeignKey(blank=True, help_text='Whose answers are rated', null=True, on_delete=django.db.models.deletion.PROTECT, related_name='rating_queues', to='runs_app.experiment'),
        ),
        migrations.AddField(
            model_name='ratingqueue',
            name='sample_items',
            field=models.PositiveIntegerField(blank=True, help_text='How many items are drawn at random, the same for all conditions. Empty: all', null=True, validators=[django.core.validators.MinValueValidator(1)], verbose_name='items to draw'),
        ),
        migrations.AddField(
            model_name='ratingqueue',
            name='sample_seed',
            field=models.PositiveIntegerField(default=1, help_text='Of the drawing: the same seed draws the same answers', verbose_name='seed'),
        ),
        migrations.AddConstraint(
            model_name='rating',
            constraint=models.UniqueConstraint(fields=('assignment', 'item', 'trial', 'dimension'), name='rating_once', nulls_distinct=False),
        ),
        migrations.AddConstraint(
            model_name='ratingqueue',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('experiment', None), ('subject', 'items')), models.Q(('experiment__isnull', False), ('subject', 'answers')), _connector='OR'), name='rating_queue_subject'),
        ),
        migrations.AddField(
            model_name='ratedanswer',
            name='item',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='datasets_app.item'),
        ),
        migrations.AddField(
            model_name='ratedanswer',
            name='queue',
            field=models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='answers', to='grading_app.ratingqueue'),
        ),
        migrations.AddField(
            model_name='ratedanswer',
            name='trial',
            field=models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='rated_in', to='runs_app.trial'),
        ),
        migrations.AddConstraint(
            model_name='ratedanswer',
            constraint=models.UniqueConstraint(fields=('queue', 'trial'), name='answer_once_a_queue'),
        ),
        migrations.RunSQL(GUARD, LET_GO),
    ]
