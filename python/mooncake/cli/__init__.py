"""Programs to run with `python -m mooncake.cli.<name>`."""
