"""A model that was asked keeps its id and its provider: a condition's snapshot is then what is sent."""

from django.db import migrations

# The locks of both endpoints come first: who claims at one of them holds it, and counts in flight what is claimed.
GUARD = """
CREATE FUNCTION runs_app_guard_model() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE used boolean := EXISTS (SELECT FROM runs_app_condition WHERE model_id = OLD.id);
BEGIN
    IF used AND NEW.model <> OLD.model THEN
        RAISE EXCEPTION 'model % is in use: it keeps its id %', OLD.name, OLD.model
            USING ERRCODE = 'restrict_violation', HINT = 'Make a new model.';
    END IF;
    IF NEW.endpoint_id = OLD.endpoint_id OR NOT used THEN
        RETURN NEW;
    END IF;
    PERFORM FROM runs_app_endpoint WHERE id IN (OLD.endpoint_id, NEW.endpoint_id) ORDER BY id FOR NO KEY UPDATE;
    IF (SELECT count(DISTINCT provider) FROM runs_app_endpoint WHERE id IN (OLD.endpoint_id, NEW.endpoint_id)) > 1 THEN
        RAISE EXCEPTION 'model % is in use: it keeps its provider', OLD.name
            USING ERRCODE = 'restrict_violation', HINT = 'Make a new model.';
    END IF;
    IF EXISTS (SELECT FROM runs_app_run r JOIN runs_app_condition c ON c.id = r.condition_id
            WHERE c.model_id = OLD.id AND r.n_running > 0) THEN
        RAISE EXCEPTION 'model % has calls in flight or in batches: it cannot be moved meanwhile', OLD.name
            USING ERRCODE = 'restrict_violation', HINT = 'Pause its runs until none is left.';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER identity_is_kept BEFORE UPDATE OF model, endpoint_id ON runs_app_languagemodel
FOR EACH ROW EXECUTE FUNCTION runs_app_guard_model();

CREATE FUNCTION runs_app_guard_provider() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM runs_app_condition c JOIN runs_app_languagemodel m ON m.id = c.model_id
            WHERE m.endpoint_id = OLD.id) THEN
        RAISE EXCEPTION 'endpoint % is in use: it keeps its provider %', OLD.name, OLD.provider
            USING ERRCODE = 'restrict_violation', HINT = 'Make a new endpoint.';
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER provider_is_kept BEFORE UPDATE OF provider ON runs_app_endpoint
FOR EACH ROW WHEN (OLD.provider <> NEW.provider) EXECUTE FUNCTION runs_app_guard_provider();
"""

LET_GO = """
DROP TRIGGER provider_is_kept ON runs_app_endpoint;
DROP FUNCTION runs_app_guard_provider();
DROP TRIGGER identity_is_kept ON runs_app_languagemodel;
DROP FUNCTION runs_app_guard_model();
"""


class Migration(migrations.Migration):
    dependencies = [("runs_app", "0020_request_tokens")]
    operations = [migrations.RunSQL(GUARD, LET_GO)]
