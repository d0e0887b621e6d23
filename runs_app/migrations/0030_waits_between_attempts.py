"""The waits between attempts of a trial become part of the design."""

import runs_app.models.bounded
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('datasets_app', '0003_items_in_order'),
        ('runs_app', '0029_key_names'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddField(
            model_name='experiment',
            name='backoff_s',
            field=models.FloatField(db_default=1, default=1, help_text='Seconds before a failed call is tried again; each further wait is twice as long', validators=[runs_app.models.bounded.InRange('experiment', 'backoff_s')], verbose_name='first wait'),
        ),
        migrations.AddField(
            model_name='experiment',
            name='max_backoff_s',
            field=models.FloatField(db_default=60, default=60, help_text="Seconds; a provider's Retry-After may ask for more", validators=[runs_app.models.bounded.InRange('experiment', 'max_backoff_s')], verbose_name='longest wait'),
        ),
        migrations.AddConstraint(
            model_name='experiment',
            constraint=runs_app.models.bounded.RangeConstraint(condition=models.Q(('backoff_s__gte', 0.1), ('backoff_s__lte', 3600)), name='experiment_backoff_s_in_range'),
        ),
        migrations.AddConstraint(
            model_name='experiment',
            constraint=runs_app.models.bounded.RangeConstraint(condition=models.Q(('max_backoff_s__gte', 0.1), ('max_backoff_s__lte', 3600)), name='experiment_max_backoff_s_in_range'),
        ),
    ]
