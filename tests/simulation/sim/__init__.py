"""The simulator: production classes in virtual time, against simulated surroundings. See ../README.md."""
