"""Frozen means frozen: the database itself refuses a change of what is approved."""

from django.db import migrations

FREEZE_ITEMS = """
CREATE FUNCTION datasets_app_refuse_unless_draft(dataset bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    reference text;
    state text;
BEGIN
    -- FOR SHARE: an approval that is under way waits for this change, or this change sees the approval.
    SELECT slug || '@' || version, status INTO reference, state
    FROM datasets_app_dataset WHERE id = dataset FOR SHARE;
    IF state <> 'draft' THEN
        RAISE EXCEPTION 'dataset % is %: its items are frozen', reference, state
            USING ERRCODE = 'restrict_violation', HINT = 'Duplicate the dataset to a new draft and change that.';
    END IF;
END $$;

CREATE FUNCTION datasets_app_guard_item() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN PERFORM datasets_app_refuse_unless_draft(OLD.dataset_id); END IF;
    IF TG_OP <> 'DELETE' THEN PERFORM datasets_app_refuse_unless_draft(NEW.dataset_id); RETURN NEW; END IF;
    RETURN OLD;
END $$;

CREATE TRIGGER frozen BEFORE INSERT OR UPDATE OR DELETE ON datasets_app_item
FOR EACH ROW EXECUTE FUNCTION datasets_app_guard_item();

CREATE FUNCTION datasets_app_guard_norm() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN
        PERFORM datasets_app_refuse_unless_draft((SELECT dataset_id FROM datasets_app_item WHERE id = OLD.item_id));
    END IF;
    IF TG_OP <> 'DELETE' THEN
        PERFORM datasets_app_refuse_unless_draft((SELECT dataset_id FROM datasets_app_item WHERE id = NEW.item_id));
        RETURN NEW;
    END IF;
    RETURN OLD;
END $$;

CREATE TRIGGER frozen BEFORE INSERT OR UPDATE OR DELETE ON datasets_app_norm
FOR EACH ROW EXECUTE FUNCTION datasets_app_guard_norm();

CREATE FUNCTION datasets_app_guard_dataset() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP = 'DELETE' THEN
        RAISE EXCEPTION 'dataset %@% is %: only a draft can be deleted', OLD.slug, OLD.version, OLD.status
            USING ERRCODE = 'restrict_violation';
    END IF;
    IF NEW.status = 'draft' THEN
        RAISE EXCEPTION 'dataset %@% was approved: it cannot be a draft again', OLD.slug, OLD.version
            USING ERRCODE = 'restrict_violation', HINT = 'Duplicate the dataset to a new draft and change that.';
    END IF;
    IF to_jsonb(OLD) - coalesce(TG_ARGV, '{}') <> to_jsonb(NEW) - coalesce(TG_ARGV, '{}') THEN
        RAISE EXCEPTION 'dataset %@% is %: it is frozen', OLD.slug, OLD.version, OLD.status
            USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN NEW;
END $$;

-- A title or a description may be mended, the source and the licence too; what an experiment rests on may not.
CREATE TRIGGER frozen BEFORE UPDATE OR DELETE ON datasets_app_dataset
FOR EACH ROW WHEN (OLD.status <> 'draft')
EXECUTE FUNCTION datasets_app_guard_dataset('status', 'title', 'description', 'source', 'licence', 'created_by_id');
"""

THAW = """
DROP TRIGGER frozen ON datasets_app_dataset;
DROP TRIGGER frozen ON datasets_app_norm;
DROP TRIGGER frozen ON datasets_app_item;
DROP FUNCTION datasets_app_guard_dataset();
DROP FUNCTION datasets_app_guard_norm();
DROP FUNCTION datasets_app_guard_item();
DROP FUNCTION datasets_app_refuse_unless_draft(bigint);
"""


class Migration(migrations.Migration):
    dependencies = [("datasets_app", "0001_initial")]
    operations = [migrations.RunSQL(FREEZE_ITEMS, THAW)]
