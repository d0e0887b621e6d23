"""What a model was asked never changes, and what is done stays done: kept by the database."""

from django.db import migrations

FREEZE = """
CREATE FUNCTION runs_app_guard_frozen() RETURNS trigger LANGUAGE plpgsql AS $$
-- The arguments are the columns that may still change.
BEGIN
    IF TG_OP = 'DELETE' THEN
        RAISE EXCEPTION '% % is in use: it cannot be deleted', TG_TABLE_NAME, OLD.id USING ERRCODE = 'restrict_violation';
    END IF;
    IF to_jsonb(OLD) - coalesce(TG_ARGV, '{}') <> to_jsonb(NEW) - coalesce(TG_ARGV, '{}') THEN
        RAISE EXCEPTION '% % is frozen', TG_TABLE_NAME, OLD.id
            USING ERRCODE = 'restrict_violation', HINT = 'Make a new version and change that.';
    END IF;
    IF to_jsonb(OLD) ->> 'status' <> 'draft' AND to_jsonb(NEW) ->> 'status' = 'draft' THEN
        RAISE EXCEPTION '% % was approved: it cannot be a draft again', TG_TABLE_NAME, OLD.id
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;

CREATE TRIGGER frozen BEFORE UPDATE OR DELETE ON runs_app_prompt
FOR EACH ROW WHEN (OLD.status <> 'draft') EXECUTE FUNCTION runs_app_guard_frozen('status', 'created_by_id');
CREATE TRIGGER frozen BEFORE UPDATE OR DELETE ON runs_app_dimension
FOR EACH ROW WHEN (OLD.status <> 'draft') EXECUTE FUNCTION runs_app_guard_frozen('status', 'created_by_id');
CREATE TRIGGER frozen BEFORE UPDATE OR DELETE ON runs_app_sampler
FOR EACH ROW WHEN (OLD.status <> 'draft') EXECUTE FUNCTION runs_app_guard_frozen('status', 'created_by_id');

-- A condition goes only together with its experiment; what it asked never changes.
CREATE TRIGGER frozen BEFORE UPDATE ON runs_app_condition
FOR EACH ROW EXECUTE FUNCTION runs_app_guard_frozen();
CREATE TRIGGER frozen BEFORE UPDATE ON runs_app_manifest
FOR EACH ROW EXECUTE FUNCTION runs_app_guard_frozen('created_by_id');

CREATE FUNCTION runs_app_guard_trial() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'trial % is done: it never changes', OLD.id USING ERRCODE = 'restrict_violation';
END $$;

CREATE TRIGGER done_is_done BEFORE UPDATE ON runs_app_trial
FOR EACH ROW WHEN (OLD.status = 'done') EXECUTE FUNCTION runs_app_guard_trial();

CREATE FUNCTION runs_app_guard_trial_identity() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'trial % keeps its run, item, dimension and repetition', OLD.id USING ERRCODE = 'restrict_violation';
END $$;

CREATE TRIGGER identity_is_fixed BEFORE UPDATE OF run_id, item_id, dimension_id, sample_idx ON runs_app_trial
FOR EACH ROW EXECUTE FUNCTION runs_app_guard_trial_identity();
"""

THAW = """
DROP TRIGGER identity_is_fixed ON runs_app_trial;
DROP FUNCTION runs_app_guard_trial_identity();
DROP TRIGGER done_is_done ON runs_app_trial;
DROP FUNCTION runs_app_guard_trial();
DROP TRIGGER frozen ON runs_app_manifest;
DROP TRIGGER frozen ON runs_app_condition;
DROP TRIGGER frozen ON runs_app_sampler;
DROP TRIGGER frozen ON runs_app_dimension;
DROP TRIGGER frozen ON runs_app_prompt;
DROP FUNCTION runs_app_guard_frozen();
"""


class Migration(migrations.Migration):
    dependencies = [("runs_app", "0001_initial")]
    operations = [migrations.RunSQL(FREEZE, THAW)]
