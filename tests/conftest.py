"""What all tests share. The modules beside this file (captures, needs) import by their name."""

from hypothesis import HealthCheck, settings

# Machines that run this are small and noisy: a slow example is no failure.
settings.register_profile(
    "livedma", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("livedma")
