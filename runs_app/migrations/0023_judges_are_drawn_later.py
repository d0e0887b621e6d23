"""Judges may be drawn for an experiment that was launched: a draw is added to those it has, which never change."""

from django.db import migrations

ADD_ONLY = """
CREATE OR REPLACE FUNCTION runs_app_guard_draws() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF OLD.draws - 'judges' IS DISTINCT FROM NEW.draws - 'judges' OR EXISTS (
        SELECT FROM jsonb_each(coalesce(OLD.draws -> 'judges', '{}')) AS was
        WHERE NEW.draws -> 'judges' -> was.key IS DISTINCT FROM was.value)
    THEN
        RAISE EXCEPTION 'the draws of experiment % are pinned', OLD.slug
            USING ERRCODE = 'restrict_violation', HINT = 'Duplicate the experiment and draw anew there.';
    END IF;
    RETURN NEW;
END $$;
"""
PIN_ALL = """
CREATE OR REPLACE FUNCTION runs_app_guard_draws() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'the draws of experiment % are pinned', OLD.slug
        USING ERRCODE = 'restrict_violation', HINT = 'Duplicate the experiment and draw anew there.';
END $$;
"""


class Migration(migrations.Migration):
    dependencies = [("runs_app", "0022_preflights")]
    operations = [migrations.RunSQL(ADD_ONLY, PIN_ALL)]
