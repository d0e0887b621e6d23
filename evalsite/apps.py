"""Django's admin as an app of this site."""

from django.contrib.admin.apps import AdminConfig


class EvalsiteAdminConfig(AdminConfig):
    default_site = "evalsite.lib.web.admin_site.EvalsiteAdminSite"
