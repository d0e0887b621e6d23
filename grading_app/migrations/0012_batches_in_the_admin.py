"""Researchers, curators and operators may see providers' batches in the admin, each those of what they may see."""

from django.db import migrations

STAFF = ("Researcher", "Curator", "Operator")


def grant(apps, schema_editor):
    # Permissions are made after all migrations have run, which is too late for a group that needs them now.
    Group, Permission = apps.get_model("auth", "Group"), apps.get_model("auth", "Permission")
    ContentType = apps.get_model("contenttypes", "ContentType")
    kind, _ = ContentType.objects.get_or_create(app_label="runs_app", model="providerbatch")
    permission, _ = Permission.objects.get_or_create(
        content_type=kind, codename="view_providerbatch", defaults={"name": "Can view provider batch"}
    )
    for group in Group.objects.filter(name__in=STAFF):
        group.permissions.add(permission)


class Migration(migrations.Migration):
    dependencies = [("grading_app", "0011_rubrics_for_people"), ("runs_app", "0012_batches")]
    operations = [migrations.RunPython(grant, migrations.RunPython.noop)]
