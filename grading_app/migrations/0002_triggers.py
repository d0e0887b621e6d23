"""The triggers of grading_app, declared in grading_app/triggers.sql."""

from django.db import migrations

from evalsite.lib.triggers import InstallTriggers


class Migration(migrations.Migration):
    dependencies = [("grading_app", "0001_initial"), ("lib", "0001_initial")]
    operations = [InstallTriggers("grading_app", "a140c93de1be")]
