"""The database checks each column with choices, and that an approved dataset has its hash and time."""

from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('datasets_app', '0003_items_in_order'),
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.AddConstraint(
            model_name='asset',
            constraint=models.CheckConstraint(condition=models.Q(('format__in', ['jpeg', 'png'])), name='datasets_app_asset_format_choices'),
        ),
        migrations.AddConstraint(
            model_name='dataset',
            constraint=models.CheckConstraint(condition=models.Q(models.Q(('status', 'approved'), _negated=True), models.Q(models.Q(('content_hash', ''), _negated=True), ('approved_at__isnull', False)), _connector='OR'), name='datasets_app_dataset_approval_is_complete'),
        ),
        migrations.AddConstraint(
            model_name='dataset',
            constraint=models.CheckConstraint(condition=models.Q(('status__in', ['approved', 'archived', 'draft'])), name='datasets_app_dataset_status_choices'),
        ),
    ]
