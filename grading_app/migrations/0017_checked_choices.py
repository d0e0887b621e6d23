"""The database checks each column with choices, and that an approved version has its hash and time."""

import django.db.models.deletion
import django.db.models.functions.datetime
from django.conf import settings
from django.db import migrations, models


# The time of each approval, from the history. Without one in the history, the row's own time counts.
APPROVED_AT = """
ALTER TABLE {table} DISABLE TRIGGER USER;
UPDATE {table} t SET approved_at = coalesce((
    SELECT max(c.at) FROM datasets_app_statuschange c JOIN django_content_type k ON k.id = c.content_type_id
    WHERE k.app_label || '_' || k.model = '{table}' AND c.object_id = t.id AND c.what = 'status'
    AND c.to_value = 'approved'), CASE WHEN t.status = 'approved' THEN t.created_at END)
WHERE t.status <> 'draft';
ALTER TABLE {table} ENABLE TRIGGER USER;
"""


class Migration(migrations.Migration):

    dependencies = [
        ('datasets_app', '0004_checked_choices'),
        ('grading_app', '0016_sums'),
        ('runs_app', '0036_checked_choices'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='SupersededVerdict',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('content', models.JSONField(help_text='All columns of the former row')),
                ('superseded_at', models.DateTimeField(db_default=django.db.models.functions.datetime.Now())),
            ],
            options={
                'ordering': ['pk'],
            },
        ),
        migrations.AddField(
            model_name='rubric',
            name='approved_at',
            field=models.DateTimeField(blank=True, editable=False, null=True),
        ),
        migrations.RunSQL(APPROVED_AT.format(table="grading_app_rubric"), migrations.RunSQL.noop),
        migrations.AddConstraint(
            model_name='gradecondition',
            constraint=models.CheckConstraint(condition=models.Q(('kind__in', ['adjudicated', 'judge', 'panel', 'person', 'rule'])), name='grading_app_gradecondition_kind_choices'),
        ),
        migrations.AddConstraint(
            model_name='grader',
            constraint=models.CheckConstraint(condition=models.Q(('on_empty__in', ['grade', 'skip', 'zero'])), name='grading_app_grader_on_empty_choices'),
        ),
        migrations.AddConstraint(
            model_name='panel',
            constraint=models.CheckConstraint(condition=models.Q(('rule__in', ['majority', 'mean', 'median'])), name='grading_app_panel_rule_choices'),
        ),
        migrations.AddConstraint(
            model_name='preference',
            constraint=models.CheckConstraint(condition=models.Q(('winner__in', ['', 'a', 'b', 'tie'])), name='grading_app_preference_winner_choices'),
        ),
        migrations.AddConstraint(
            model_name='rating',
            constraint=models.CheckConstraint(condition=models.Q(('kind__in', ['check', 'item', 'practice'])), name='grading_app_rating_kind_choices'),
        ),
        migrations.AddConstraint(
            model_name='ratingqueue',
            constraint=models.CheckConstraint(condition=models.Q(('subject__in', ['answers', 'items'])), name='grading_app_ratingqueue_subject_choices'),
        ),
        migrations.AddConstraint(
            model_name='ratingqueue',
            constraint=models.CheckConstraint(condition=models.Q(('status__in', ['closed', 'draft', 'open'])), name='grading_app_ratingqueue_status_choices'),
        ),
        migrations.AddConstraint(
            model_name='rubric',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('status', 'approved'), _negated=True), models.Q(models.Q(('content_hash', ''), _negated=True), ('approved_at__isnull', False)), _connector='OR'), name='grading_app_rubric_approval_is_complete'),
        ),
        migrations.AddConstraint(
            model_name='rubric',
            constraint=models.CheckConstraint(condition=models.Q(('status__in', ['approved', 'archived', 'draft'])), name='grading_app_rubric_status_choices'),
        ),
        migrations.AddConstraint(
            model_name='rubric',
            constraint=models.CheckConstraint(condition=models.Q(('kind__in', ['criteria', 'label', 'pairwise', 'score', 'writer'])), name='grading_app_rubric_kind_choices'),
        ),
        migrations.AddField(
            model_name='supersededverdict',
            name='condition',
            field=models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='superseded', to='grading_app.gradecondition'),
        ),
        migrations.AddField(
            model_name='supersededverdict',
            name='rival',
            field=models.ForeignKey(db_constraint=False, db_index=False, help_text='Of a preference: the answer shown second', null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to='runs_app.trial'),
        ),
        migrations.AddField(
            model_name='supersededverdict',
            name='trial',
            field=models.ForeignKey(db_constraint=False, on_delete=django.db.models.deletion.CASCADE, related_name='superseded', to='runs_app.trial'),
        ),
    ]
