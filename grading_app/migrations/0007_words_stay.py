"""What was adjudicated is never changed: a correction is another row."""

from django.db import migrations

GUARD = """
CREATE FUNCTION grading_app_guard_adjudication() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'adjudications are only added: % stays as it is', OLD.id USING ERRCODE = 'restrict_violation';
END $$;

CREATE TRIGGER stays BEFORE UPDATE ON grading_app_adjudication
FOR EACH ROW EXECUTE FUNCTION grading_app_guard_adjudication();
"""

LET_GO = """
DROP TRIGGER stays ON grading_app_adjudication;
DROP FUNCTION grading_app_guard_adjudication();
"""


class Migration(migrations.Migration):
    dependencies = [("grading_app", "0006_frozen_judges")]

    operations = [migrations.RunSQL(GUARD, LET_GO)]
