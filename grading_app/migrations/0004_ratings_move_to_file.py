"""The triggers let the ratings of a closed queue move to a file, and back, with the rows of their experiment."""

from django.db import migrations

from evalsite.lib.migration_operations import InstallTriggers


class Migration(migrations.Migration):
    dependencies = [("grading_app", "0003_roles")]
    operations = [InstallTriggers("grading_app", "f3b97ca65d48")]
