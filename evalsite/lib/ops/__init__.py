"""Operating a site: settings, embedded PostgreSQL, supervisor, backup, versions and system checks."""
