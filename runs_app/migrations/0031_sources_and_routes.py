"""A price has a source and a date; and when the way to a model changed, by triggers: a preflight from before is outdated."""

from django.db import migrations, models

from runs_app.models.bounded import RangeConstraint

PRICES = ("input_price", "output_price", "cache_read_price", "cache_write_price")
FILL = f"""
UPDATE runs_app_languagemodel SET
    price_source = CASE WHEN price_source = '' THEN 'not recorded' ELSE price_source END,
    price_date = coalesce(price_date, current_date)
WHERE (price_source = '' OR price_date IS NULL) AND coalesce({", ".join(PRICES)}) IS NOT NULL;
SET CONSTRAINTS ALL IMMEDIATE;
"""  # noqa: S608 - built from the names above
ROUTES = """
CREATE FUNCTION runs_app_note_route() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    NEW.route_changed_at := clock_timestamp();
    RETURN NEW;
END $$;
CREATE TRIGGER endpoint_route_changed BEFORE UPDATE OF provider, base_url, key_env ON runs_app_endpoint
FOR EACH ROW WHEN ((OLD.provider, OLD.base_url, OLD.key_env) IS DISTINCT FROM (NEW.provider, NEW.base_url, NEW.key_env))
EXECUTE FUNCTION runs_app_note_route();
CREATE TRIGGER languagemodel_route_changed BEFORE UPDATE OF model, endpoint_id ON runs_app_languagemodel
FOR EACH ROW WHEN ((OLD.model, OLD.endpoint_id) IS DISTINCT FROM (NEW.model, NEW.endpoint_id))
EXECUTE FUNCTION runs_app_note_route();
"""
UNDO = """
DROP TRIGGER endpoint_route_changed ON runs_app_endpoint;
DROP TRIGGER languagemodel_route_changed ON runs_app_languagemodel;
DROP FUNCTION runs_app_note_route();
"""


class Migration(migrations.Migration):
    dependencies = [("runs_app", "0030_waits_between_attempts")]

    operations = [
        migrations.RunSQL(FILL, migrations.RunSQL.noop),
        migrations.AlterField(
            model_name="languagemodel",
            name="price_source",
            field=models.CharField(
                blank=True,
                help_text="Where the prices come from, such as the address of a price list",
                max_length=200,
            ),
        ),
        migrations.AlterField(
            model_name="languagemodel",
            name="price_date",
            field=models.DateField(blank=True, help_text="When they were read; empty is today", null=True),
        ),
        migrations.AddConstraint(
            model_name="languagemodel",
            constraint=RangeConstraint(
                condition=models.Q(**{f"{name}__isnull": True for name in PRICES})
                | models.Q(~models.Q(price_source=""), price_date__isnull=False),
                name="languagemodel_price_has_source",
            ),
        ),
        migrations.AddField(
            model_name="languagemodel",
            name="route_changed_at",
            field=models.DateTimeField(
                editable=False, help_text="When its id or its endpoint changed; set by a trigger", null=True
            ),
        ),
        migrations.AddField(
            model_name="endpoint",
            name="route_changed_at",
            field=models.DateTimeField(
                editable=False,
                help_text="When its address, provider or key variable changed; set by a trigger",
                null=True,
            ),
        ),
        migrations.RunSQL(ROUTES, UNDO),
    ]
