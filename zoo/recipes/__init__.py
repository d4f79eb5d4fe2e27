"""One file per task, and one YAML per entry."""
