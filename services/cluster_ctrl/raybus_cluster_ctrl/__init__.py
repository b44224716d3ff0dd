"""The controller of RayClusters. README.md beside this package says what is where."""
