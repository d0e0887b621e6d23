"""The trigger that keeps the former texts of annotations."""

from django.db import migrations

from evalsite.lib.triggers import InstallTriggers


class Migration(migrations.Migration):
    dependencies = [("runs_app", "0004_annotations")]
    operations = [InstallTriggers("runs_app", "08b99d448af9")]
