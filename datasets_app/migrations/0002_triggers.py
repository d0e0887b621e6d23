"""The triggers of datasets_app, declared in datasets_app/triggers.sql."""

from django.db import migrations

from evalsite.lib.migration_operations import InstallTriggers


class Migration(migrations.Migration):
    dependencies = [("datasets_app", "0001_initial"), ("lib", "0001_initial")]
    operations = [InstallTriggers("datasets_app", "3fb9a610ae6c")]
