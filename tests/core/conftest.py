"""The pure core is tested with generated cases: few enough here that the whole folder takes seconds."""

from hypothesis import HealthCheck, settings

settings.register_profile("quick", max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("quick")
