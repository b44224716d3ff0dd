"""The `raybus` command. main.py has the commands and their flags; what each does stands in a module beside it."""
