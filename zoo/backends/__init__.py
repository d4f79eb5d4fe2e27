"""What compiles and runs a step."""
