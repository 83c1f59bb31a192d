"""Roll-ups as metrics: what Prometheus scrapes, node_exporter picks up, and OTLP receives."""
