"""Freeze the space of an approved dataset."""

from django.db import migrations

from evalsite.lib.triggers import InstallTriggers


class Migration(migrations.Migration):
    dependencies = [("datasets_app", "0003_parametricspace")]
    operations = [InstallTriggers("datasets_app", "a8a0ed8f7f2a")]
