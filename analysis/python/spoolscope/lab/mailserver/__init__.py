"""Real mail servers on the loopback of namespaces of their own, loaded and recorded."""
