"""What people get: summary, files, dashboard."""
