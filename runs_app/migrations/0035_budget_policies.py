"""How much of a design a launch asks: the budget policies dev and full."""

import runs_app.models.bounded
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('datasets_app', '0003_items_in_order'),
        ('runs_app', '0034_deleted_runs'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='experiment',
            name='budget_policy',
            field=models.CharField(choices=[('dev', 'Dev: the first items only, call by call'), ('full', 'Full: every item and sample')], db_default='full', default='full', help_text='How much of the design a launch asks', max_length=10),
        ),
        migrations.AddField(
            model_name='experiment',
            name='dev_items',
            field=models.PositiveIntegerField(db_default=2, default=2, help_text='Items of the policy dev, from the first on', validators=[runs_app.models.bounded.InRange('experiment', 'dev_items')]),
        ),
        migrations.AddField(
            model_name='experiment',
            name='dev_samples',
            field=models.PositiveIntegerField(blank=True, help_text='Samples of the policy dev at most; empty for those of the design', null=True, validators=[runs_app.models.bounded.InRange('experiment', 'dev_samples')]),
        ),
        migrations.AddConstraint(
            model_name='experiment',
            constraint=runs_app.models.bounded.RangeConstraint(condition=models.Q(('budget_policy__in', ['dev', 'full'])), name='experiment_budget_policy_is_known'),
        ),
        migrations.AddConstraint(
            model_name='experiment',
            constraint=runs_app.models.bounded.RangeConstraint(condition=models.Q(('dev_items__gte', 1), ('dev_items__lte', 1000000)), name='experiment_dev_items_in_range'),
        ),
        migrations.AddConstraint(
            model_name='experiment',
            constraint=runs_app.models.bounded.RangeConstraint(condition=models.Q(('dev_samples__gte', 1), ('dev_samples__lte', 10000)), name='experiment_dev_samples_in_range'),
        ),
    ]
