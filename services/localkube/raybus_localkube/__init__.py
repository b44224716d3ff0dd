"""A Kubernetes for one machine. README.md beside this package says what is where."""
