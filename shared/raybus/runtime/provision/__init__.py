"""What an installation needs once and keeps: keys, certificates and streams. `raybus provision` runs it."""
