"""What `zoo bench` runs."""
