"""The controller of RayJobs. README.md beside this package says what is where."""
