"""The database checks each column with choices, and that an approved version has its hash and time."""

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
        ('runs_app', '0035_budget_policies'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='dimension',
            name='approved_at',
            field=models.DateTimeField(blank=True, editable=False, null=True),
        ),
        migrations.AddField(
            model_name='prompt',
            name='approved_at',
            field=models.DateTimeField(blank=True, editable=False, null=True),
        ),
        migrations.AddField(
            model_name='sampler',
            name='approved_at',
            field=models.DateTimeField(blank=True, editable=False, null=True),
        ),
        migrations.AddField(
            model_name='textset',
            name='approved_at',
            field=models.DateTimeField(blank=True, editable=False, null=True),
        ),
        migrations.RunSQL(APPROVED_AT.format(table="runs_app_dimension"), migrations.RunSQL.noop),
        migrations.RunSQL(APPROVED_AT.format(table="runs_app_prompt"), migrations.RunSQL.noop),
        migrations.RunSQL(APPROVED_AT.format(table="runs_app_sampler"), migrations.RunSQL.noop),
        migrations.RunSQL(APPROVED_AT.format(table="runs_app_textset"), migrations.RunSQL.noop),
        migrations.RemoveConstraint(model_name="experiment", name="experiment_on_unreadable_is_known"),
        migrations.RemoveConstraint(model_name="experiment", name="experiment_budget_policy_is_known"),
        migrations.AddConstraint(
            model_name="experiment",
            constraint=models.CheckConstraint(
                condition=models.Q(("budget_policy__in", ["dev", "full"])),
                name="runs_app_experiment_budget_policy_choices",
            ),
        ),
        migrations.AddConstraint(
            model_name="experiment",
            constraint=models.CheckConstraint(
                condition=models.Q(("on_unreadable__in", ["keep", "rerun"])),
                name="runs_app_experiment_on_unreadable_choices",
            ),
        ),
        migrations.AddConstraint(
            model_name='attempt',
            constraint=models.CheckConstraint(condition=models.Q(('outcome__in', ['cached', 'endpoint', 'late', 'lost', 'ok', 'permanent', 'released', 'transient'])), name='runs_app_attempt_outcome_choices'),
        ),
        migrations.AddConstraint(
            model_name='condition',
            constraint=models.CheckConstraint(condition=models.Q(('stage__in', ['generate', 'judge', 'rubric'])), name='runs_app_condition_stage_choices'),
        ),
        migrations.AddConstraint(
            model_name='dimension',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('status', 'approved'), _negated=True), models.Q(models.Q(('content_hash', ''), _negated=True), ('approved_at__isnull', False)), _connector='OR'), name='runs_app_dimension_approval_is_complete'),
        ),
        migrations.AddConstraint(
            model_name='dimension',
            constraint=models.CheckConstraint(condition=models.Q(('status__in', ['approved', 'archived', 'draft'])), name='runs_app_dimension_status_choices'),
        ),
        migrations.AddConstraint(
            model_name='endpoint',
            constraint=models.CheckConstraint(condition=models.Q(('provider__in', ['anthropic', 'gemini', 'hosted_vllm', 'ollama_chat', 'openai', 'openrouter'])), name='runs_app_endpoint_provider_choices'),
        ),
        migrations.AddConstraint(
            model_name='endpoint',
            constraint=models.CheckConstraint(condition=models.Q(('batch_api__in', ['anthropic', 'none', 'openai'])), name='runs_app_endpoint_batch_api_choices'),
        ),
        migrations.AddConstraint(
            model_name='endpoint',
            constraint=models.CheckConstraint(condition=models.Q(('local_server__in', ['', 'ollama'])), name='runs_app_endpoint_local_server_choices'),
        ),
        migrations.AddConstraint(
            model_name='experiment',
            constraint=models.CheckConstraint(condition=models.Q(('sharing__in', ['group', 'private'])), name='runs_app_experiment_sharing_choices'),
        ),
        migrations.AddConstraint(
            model_name='experiment',
            constraint=models.CheckConstraint(condition=models.Q(('status__in', ['active', 'archived', 'draft'])), name='runs_app_experiment_status_choices'),
        ),
        migrations.AddConstraint(
            model_name='experiment',
            constraint=models.CheckConstraint(condition=models.Q(('on_empty__in', ['keep', 'rerun', 'skip'])), name='runs_app_experiment_on_empty_choices'),
        ),
        migrations.AddConstraint(
            model_name='point',
            constraint=models.CheckConstraint(condition=models.Q(('status__in', ['aborted', 'cancelled', 'enough', 'exhausted', 'open'])), name='runs_app_point_status_choices'),
        ),
        migrations.AddConstraint(
            model_name='preflight',
            constraint=models.CheckConstraint(condition=models.Q(('status__in', ['dead', 'ok', 'running', 'unverified', 'waiting'])), name='runs_app_preflight_status_choices'),
        ),
        migrations.AddConstraint(
            model_name='prompt',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('status', 'approved'), _negated=True), models.Q(models.Q(('content_hash', ''), _negated=True), ('approved_at__isnull', False)), _connector='OR'), name='runs_app_prompt_approval_is_complete'),
        ),
        migrations.AddConstraint(
            model_name='prompt',
            constraint=models.CheckConstraint(condition=models.Q(('status__in', ['approved', 'archived', 'draft'])), name='runs_app_prompt_status_choices'),
        ),
        migrations.AddConstraint(
            model_name='prompt',
            constraint=models.CheckConstraint(condition=models.Q(('answer_format__in', ['rating', 'rating_with_reasoning', 'text'])), name='runs_app_prompt_answer_format_choices'),
        ),
        migrations.AddConstraint(
            model_name='providerbatch',
            constraint=models.CheckConstraint(condition=models.Q(('status__in', ['cancelled', 'cancelling', 'collected', 'collecting', 'expired', 'failed', 'preparing', 'submitted', 'submitting'])), name='runs_app_providerbatch_status_choices'),
        ),
        migrations.AddConstraint(
            model_name='run',
            constraint=models.CheckConstraint(condition=models.Q(('status__in', ['cancelled', 'done', 'paused', 'planned', 'queued', 'running', 'stopped'])), name='runs_app_run_status_choices'),
        ),
        migrations.AddConstraint(
            model_name='sampler',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('status', 'approved'), _negated=True), models.Q(models.Q(('content_hash', ''), _negated=True), ('approved_at__isnull', False)), _connector='OR'), name='runs_app_sampler_approval_is_complete'),
        ),
        migrations.AddConstraint(
            model_name='sampler',
            constraint=models.CheckConstraint(condition=models.Q(('status__in', ['approved', 'archived', 'draft'])), name='runs_app_sampler_status_choices'),
        ),
        migrations.AddConstraint(
            model_name='textset',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('status', 'approved'), _negated=True), models.Q(models.Q(('content_hash', ''), _negated=True), ('approved_at__isnull', False)), _connector='OR'), name='runs_app_textset_approval_is_complete'),
        ),
        migrations.AddConstraint(
            model_name='textset',
            constraint=models.CheckConstraint(condition=models.Q(('status__in', ['approved', 'archived', 'draft'])), name='runs_app_textset_status_choices'),
        ),
        migrations.AddConstraint(
            model_name='trial',
            constraint=models.CheckConstraint(condition=models.Q(('status__in', ['cancelled', 'done', 'failed', 'pending', 'running'])), name='runs_app_trial_status_choices'),
        ),
    ]
