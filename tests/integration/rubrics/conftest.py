from tests.integration.admin.conftest import as_user, curator, operator, researcher, superuser

__all__ = ["as_user", "curator", "operator", "researcher", "superuser"]
