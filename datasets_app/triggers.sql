-- The triggers of datasets_app, by table. CONTRIBUTING.md, "A trigger", says how to change one.

-- ## datasets_app_dataset, datasets_app_item, datasets_app_norm, datasets_app_parametricspace

-- An approved dataset never changes, except for its status, title, description, source and licence.
CREATE OR REPLACE FUNCTION datasets_app_dataset_frozen() RETURNS trigger LANGUAGE plpgsql AS $$
-- The arguments are the columns that may still change.
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

CREATE TRIGGER datasets_app_dataset_frozen BEFORE UPDATE OR DELETE ON datasets_app_dataset
FOR EACH ROW WHEN (OLD.status <> 'draft')
EXECUTE FUNCTION datasets_app_dataset_frozen('status', 'title', 'description', 'source', 'licence', 'created_by_id');

-- Raise an exception unless this dataset is a draft. Used by the triggers on items and norms.
CREATE OR REPLACE FUNCTION datasets_app_refuse_unless_draft(dataset bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    reference text;
    state text;
BEGIN
    -- FOR SHARE: an approval in progress waits for this change, or this change sees the approval.
    SELECT slug || '@' || version, status INTO reference, state
    FROM datasets_app_dataset WHERE id = dataset FOR SHARE;
    IF state <> 'draft' THEN
        RAISE EXCEPTION 'dataset % is %: its items are frozen', reference, state
            USING ERRCODE = 'restrict_violation', HINT = 'Duplicate the dataset to a new draft and change that.';
    END IF;
END $$;

-- Items are added, changed and deleted only in a draft.
CREATE OR REPLACE FUNCTION datasets_app_item_frozen() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN PERFORM datasets_app_refuse_unless_draft(OLD.dataset_id); END IF;
    IF TG_OP <> 'DELETE' THEN PERFORM datasets_app_refuse_unless_draft(NEW.dataset_id); RETURN NEW; END IF;
    RETURN OLD;
END $$;

CREATE TRIGGER datasets_app_item_frozen BEFORE INSERT OR UPDATE OR DELETE ON datasets_app_item
FOR EACH ROW EXECUTE FUNCTION datasets_app_item_frozen();

-- Norms are added, changed and deleted only in a draft.
CREATE OR REPLACE FUNCTION datasets_app_norm_frozen() RETURNS trigger LANGUAGE plpgsql AS $$
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

CREATE TRIGGER datasets_app_norm_frozen BEFORE INSERT OR UPDATE OR DELETE ON datasets_app_norm
FOR EACH ROW EXECUTE FUNCTION datasets_app_norm_frozen();

-- The space of a generated dataset is added, changed and deleted only while the dataset is a draft.
CREATE OR REPLACE FUNCTION datasets_app_parametricspace_frozen() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF TG_OP <> 'INSERT' THEN PERFORM datasets_app_refuse_unless_draft(OLD.dataset_id); END IF;
    IF TG_OP <> 'DELETE' THEN PERFORM datasets_app_refuse_unless_draft(NEW.dataset_id); RETURN NEW; END IF;
    RETURN OLD;
END $$;

CREATE TRIGGER datasets_app_parametricspace_frozen BEFORE INSERT OR UPDATE OR DELETE ON datasets_app_parametricspace
FOR EACH ROW EXECUTE FUNCTION datasets_app_parametricspace_frozen();

-- Approved rows do not leave with the whole table either.
CREATE TRIGGER datasets_app_dataset_no_truncate BEFORE TRUNCATE ON datasets_app_dataset
FOR EACH STATEMENT WHEN (evalsite_deleting() <> '*')
EXECUTE FUNCTION evalsite_refuse_change('approved datasets are frozen', 'Create a new database instead.');

CREATE TRIGGER datasets_app_item_no_truncate BEFORE TRUNCATE ON datasets_app_item
FOR EACH STATEMENT WHEN (evalsite_deleting() <> '*')
EXECUTE FUNCTION evalsite_refuse_change('items of approved datasets are frozen', 'Create a new database instead.');

CREATE TRIGGER datasets_app_norm_no_truncate BEFORE TRUNCATE ON datasets_app_norm
FOR EACH STATEMENT WHEN (evalsite_deleting() <> '*')
EXECUTE FUNCTION evalsite_refuse_change('norms of approved datasets are frozen', 'Create a new database instead.');

CREATE TRIGGER datasets_app_parametricspace_no_truncate BEFORE TRUNCATE ON datasets_app_parametricspace
FOR EACH STATEMENT WHEN (evalsite_deleting() <> '*')
EXECUTE FUNCTION evalsite_refuse_change('spaces of approved datasets are frozen', 'Create a new database instead.');

-- ## datasets_app_asset

-- The key of an image is the hash of its bytes, so its row never changes.
CREATE TRIGGER datasets_app_asset_no_update BEFORE UPDATE ON datasets_app_asset
FOR EACH ROW WHEN (OLD IS DISTINCT FROM NEW)
EXECUTE FUNCTION evalsite_refuse_change('an image never changes', 'Import the other image: its hash is its key.');

-- An image is deleted only if no item has it. The foreign key of items refuses later, at the end of the transaction.
CREATE OR REPLACE FUNCTION datasets_app_asset_in_use() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM datasets_app_item WHERE image_id = OLD.sha256) THEN
        RAISE EXCEPTION 'image % is in use: it cannot be deleted', OLD.sha256 USING ERRCODE = 'restrict_violation';
    END IF;
    RETURN OLD;
END $$;

CREATE TRIGGER datasets_app_asset_in_use BEFORE DELETE ON datasets_app_asset
FOR EACH ROW EXECUTE FUNCTION datasets_app_asset_in_use();

CREATE TRIGGER datasets_app_asset_no_truncate BEFORE TRUNCATE ON datasets_app_asset
FOR EACH STATEMENT WHEN (evalsite_deleting() <> '*')
EXECUTE FUNCTION evalsite_refuse_change('images of approved datasets are frozen', 'Create a new database instead.');
