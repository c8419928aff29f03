"""What all tests share; the modules beside this file (captures, needs, …) are importable by name."""

from hypothesis import HealthCheck, settings

# Machines that run this are small and noisy: a slow example is no failure.
settings.register_profile(
    "livedma", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("livedma")
