"""The history of changes is append-only, kept so by triggers. Their functions serve the other apps, too."""

from django.db import migrations

FUNCTIONS = """
CREATE FUNCTION evalsite_refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
-- The arguments are the rule and what to do instead.
BEGIN
    RAISE EXCEPTION '% on % refused: %', TG_OP, TG_TABLE_NAME, TG_ARGV[0]
        USING ERRCODE = 'restrict_violation', HINT = TG_ARGV[1];
END $$;

CREATE FUNCTION evalsite_deleting() RETURNS text LANGUAGE sql STABLE AS $$
-- The key of the experiment that this transaction deletes rows of, '*' for those of all experiments, or ''.
SELECT coalesce(current_setting('evalsite.deleting_experiment', true), '')
$$;
"""
NO_FUNCTIONS = """
DROP FUNCTION evalsite_deleting();
DROP FUNCTION evalsite_refuse_change();
"""

# Only the link to a user may go, together with the user; the author's name stays in `actor`.
HISTORY = """
CREATE TRIGGER datasets_app_statuschange_no_update BEFORE UPDATE ON datasets_app_statuschange
FOR EACH ROW WHEN (to_jsonb(OLD) - 'by_id' IS DISTINCT FROM to_jsonb(NEW) - 'by_id' OR NEW.by_id IS NOT NULL)
EXECUTE FUNCTION evalsite_refuse_change('history is append-only', 'Record a new change that corrects this one.');

CREATE TRIGGER datasets_app_statuschange_no_delete BEFORE DELETE ON datasets_app_statuschange
FOR EACH ROW WHEN (evalsite_deleting() <> '*')
EXECUTE FUNCTION evalsite_refuse_change('history is append-only', 'Record a new change that corrects this one.');

CREATE TRIGGER datasets_app_statuschange_no_truncate BEFORE TRUNCATE ON datasets_app_statuschange
FOR EACH STATEMENT WHEN (evalsite_deleting() <> '*')
EXECUTE FUNCTION evalsite_refuse_change('history is append-only', 'Create a new database instead.');
"""
NO_HISTORY = "".join(
    f"DROP TRIGGER datasets_app_statuschange_no_{verb} ON datasets_app_statuschange;\n"
    for verb in ("update", "delete", "truncate")
)


class Migration(migrations.Migration):
    dependencies = [("datasets_app", "0004_checked_choices")]
    operations = [migrations.RunSQL(FUNCTIONS, NO_FUNCTIONS), migrations.RunSQL(HISTORY, NO_HISTORY)]
