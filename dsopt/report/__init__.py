"""What a person gets: summary, files, dashboard."""
