"""What leaves the process as numbers: the metric catalogue and the metrics page."""
