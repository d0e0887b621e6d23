"""The app configuration that gives Django's admin the site's own AdminSite."""

from django.contrib.admin.apps import AdminConfig


class EvalsiteAdminConfig(AdminConfig):
    default_site = "evalsite.lib.web.admin_site.EvalsiteAdminSite"
