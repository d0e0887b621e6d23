"""Ratings by people, and what the database itself refuses about them."""

import django.core.validators
import django.db.models.deletion
import grading_app.models.rating
from django.conf import settings
from django.db import migrations, models

GUARD = """
CREATE FUNCTION grading_app_guard_queue() RETURNS trigger LANGUAGE plpgsql AS $$
-- The arguments are the columns that may still change.
BEGIN
    IF TG_OP = 'DELETE' THEN
        RAISE EXCEPTION 'queue % was open: its ratings stay', OLD.name USING ERRCODE = 'restrict_violation';
    END IF;
    IF NEW.status = 'draft' OR to_jsonb(OLD) - TG_ARGV <> to_jsonb(NEW) - TG_ARGV THEN
        RAISE EXCEPTION 'queue % was open: what is asked never changes', OLD.name USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER frozen BEFORE UPDATE OR DELETE ON grading_app_ratingqueue
FOR EACH ROW WHEN (OLD.status <> 'draft') EXECUTE FUNCTION grading_app_guard_queue('status', 'raters_wanted', 'owner_id');

CREATE FUNCTION grading_app_guard_queue_dimension() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    state text;
BEGIN
    SELECT status INTO state FROM grading_app_ratingqueue
    WHERE id = (CASE WHEN TG_OP = 'DELETE' THEN OLD.ratingqueue_id ELSE NEW.ratingqueue_id END) FOR SHARE;
    IF TG_OP = 'UPDATE' OR state <> 'draft' THEN
        RAISE EXCEPTION 'a queue that was open keeps its dimensions' USING ERRCODE = 'restrict_violation';
    END IF;
    IF TG_OP = 'DELETE' THEN RETURN OLD; END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER frozen BEFORE INSERT OR UPDATE OR DELETE ON grading_app_ratingqueue_dimensions
FOR EACH ROW EXECUTE FUNCTION grading_app_guard_queue_dimension();

CREATE FUNCTION grading_app_guard_rating() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    state text;
    low integer;
    high integer;
BEGIN
    IF TG_OP = 'DELETE' THEN
        IF OLD.value IS NOT NULL THEN
            RAISE EXCEPTION 'rating % was given: it stays', OLD.id USING ERRCODE = 'restrict_violation';
        END IF;
        RETURN OLD;
    END IF;
    IF TG_OP = 'UPDATE' AND (OLD.assignment_id, OLD.item_id, OLD.dimension_id, OLD.kind, OLD.position)
        IS DISTINCT FROM (NEW.assignment_id, NEW.item_id, NEW.dimension_id, NEW.kind, NEW.position) THEN
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
        SELECT scale_min, scale_max INTO low, high FROM runs_app_dimension WHERE id = NEW.dimension_id;
        IF NEW.value NOT BETWEEN low AND high THEN
            RAISE EXCEPTION 'rating % is not on the scale from % to %', NEW.value, low, high
                USING ERRCODE = 'check_violation';
        END IF;
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER held BEFORE INSERT OR UPDATE OR DELETE ON grading_app_rating
FOR EACH ROW EXECUTE FUNCTION grading_app_guard_rating();
"""

LET_GO = """
DROP TRIGGER held ON grading_app_rating;
DROP FUNCTION grading_app_guard_rating();
DROP TRIGGER frozen ON grading_app_ratingqueue_dimensions;
DROP FUNCTION grading_app_guard_queue_dimension();
DROP TRIGGER frozen ON grading_app_ratingqueue;
DROP FUNCTION grading_app_guard_queue();
"""


class Migration(migrations.Migration):

    dependencies = [
        ('datasets_app', '0003_items_in_order'),
        ('grading_app', '0002_roles'),
        ('runs_app', '0007_leaner_indexes'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='RaterAssignment',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('number', models.PositiveIntegerField()),
                ('by_link', models.BooleanField(default=False, help_text='The account was made by an invitation, for this queue alone')),
                ('seed', models.BigIntegerField(help_text="Of this rater's order")),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('started_at', models.DateTimeField(blank=True, null=True)),
                ('finished_at', models.DateTimeField(blank=True, null=True)),
                ('excluded_at', models.DateTimeField(blank=True, null=True)),
                ('dimension', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.PROTECT, related_name='+', to='runs_app.dimension')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='rating_assignments', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['number'],
            },
        ),
        migrations.CreateModel(
            name='RatingQueue',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('name', models.CharField(max_length=80, unique=True, validators=[django.core.validators.RegexValidator('^[a-z0-9][a-z0-9_-]*\\Z', 'Use small letters, digits, - and _, starting with a letter or digit.'), grading_app.models.rating.refuse_page_names])),
                ('title', models.CharField(help_text='Raters see this', max_length=200)),
                ('instructions', models.TextField(help_text='Raters read this before they start, and whenever they like')),
                ('subject', models.CharField(choices=[('items', 'The items of the dataset'), ('answers', 'The answers of an experiment, without their models')], default='items', editable=False, max_length=10)),
                ('raters_wanted', models.PositiveSmallIntegerField(default=10, help_text='How many people shall rate each item on each dimension', validators=[django.core.validators.MinValueValidator(1), django.core.validators.MaxValueValidator(10000)], verbose_name='raters an item')),
                ('items_per_rater', models.PositiveIntegerField(blank=True, help_text='Empty: all that still want raters', null=True, validators=[django.core.validators.MinValueValidator(1)])),
                ('one_dimension_per_rater', models.BooleanField(default=False, help_text='Each rater is given one of the dimensions, in equal numbers')),
                ('in_blocks', models.BooleanField(default=False, help_text='Otherwise each item is rated on all dimensions before the next one comes', verbose_name='one dimension after the other')),
                ('practice_items', models.PositiveSmallIntegerField(default=0, help_text='The first items of the dataset: the same for everybody, rated first and never counted')),
                ('attention_checks', models.JSONField(blank=True, default=dict)),
                ('status', models.CharField(choices=[('draft', 'Draft'), ('open', 'Open'), ('closed', 'Closed')], default='draft', editable=False, max_length=10)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('dataset', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='rating_queues', to='datasets_app.dataset')),
                ('dimensions', models.ManyToManyField(related_name='rating_queues', to='runs_app.dimension')),
                ('owner', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='rating_queues', to=settings.AUTH_USER_MODEL)),
            ],
            options={
                'ordering': ['-created_at', 'name'],
            },
        ),
        migrations.CreateModel(
            name='RaterInvitation',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('token_hash', models.CharField(max_length=64, unique=True)),
                ('created_at', models.DateTimeField(auto_now_add=True)),
                ('expires_at', models.DateTimeField()),
                ('used_at', models.DateTimeField(blank=True, null=True)),
                ('assignment', models.ForeignKey(blank=True, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='invitations', to='grading_app.raterassignment')),
                ('created_by', models.ForeignKey(null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL)),
                ('queue', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='invitations', to='grading_app.ratingqueue')),
            ],
            options={
                'ordering': ['-created_at', '-pk'],
            },
        ),
        migrations.AddField(
            model_name='raterassignment',
            name='queue',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='assignments', to='grading_app.ratingqueue'),
        ),
        migrations.CreateModel(
            name='Rating',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('practice', 'Practice'), ('item', 'Item'), ('check', 'Attention check')], max_length=10)),
                ('position', models.PositiveIntegerField(help_text="In the rater's order, from 1")),
                ('value', models.IntegerField(null=True)),
                ('seconds', models.FloatField(help_text='From showing the item to the rating', null=True)),
                ('revisions', models.PositiveSmallIntegerField(default=0, help_text='How often the rater took it back')),
                ('rated_at', models.DateTimeField(null=True)),
                ('assignment', models.ForeignKey(db_index=False, on_delete=django.db.models.deletion.CASCADE, related_name='ratings', to='grading_app.raterassignment')),
                ('dimension', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='ratings', to='runs_app.dimension')),
                ('item', models.ForeignKey(on_delete=django.db.models.deletion.PROTECT, related_name='ratings', to='datasets_app.item')),
            ],
            options={
                'ordering': ['assignment', 'position'],
                'constraints': [models.UniqueConstraint(fields=('assignment', 'position'), name='rating_place'), models.UniqueConstraint(fields=('assignment', 'item', 'dimension'), name='rating_once'), models.CheckConstraint(condition=models.Q(models.Q(('rated_at', None), ('seconds', None), ('value', None)), models.Q(('rated_at__isnull', False), ('seconds__isnull', False), ('value__isnull', False)), _connector='OR'), name='rating_given_or_not')],
            },
        ),
        migrations.AddConstraint(
            model_name='ratingqueue',
            constraint=models.CheckConstraint(condition=models.Q(('subject', 'items')), name='rating_queue_of_items'),
        ),
        migrations.AddConstraint(
            model_name='ratingqueue',
            constraint=models.CheckConstraint(condition=models.Q(('raters_wanted__gte', 1)), name='rating_queue_wants_raters'),
        ),
        migrations.AddConstraint(
            model_name='raterassignment',
            constraint=models.UniqueConstraint(fields=('queue', 'user'), name='rater_once_a_queue'),
        ),
        migrations.AddConstraint(
            model_name='raterassignment',
            constraint=models.UniqueConstraint(fields=('queue', 'number'), name='rater_number_in_queue'),
        ),
        migrations.RunSQL(GUARD, LET_GO),
    ]
