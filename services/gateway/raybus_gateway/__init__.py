"""The gateway from Kubernetes to NATS. README.md beside this package says what is where."""
