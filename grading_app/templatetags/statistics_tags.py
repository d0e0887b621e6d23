"""Filters that write statistics as all tables do."""

from __future__ import annotations

from django import template

from grading_app.results.statistic_format import format_coefficient

register = template.Library()
register.filter("coefficient", format_coefficient)
