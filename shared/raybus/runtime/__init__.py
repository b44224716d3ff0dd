"""What makes a service of pure decisions: settings, connections, the queue and its passes, the executor, probes, the end."""
