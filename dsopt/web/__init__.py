"""Pages for a browser: an overview of all studies, a page for each, a report in one file, and optuna-dashboard."""
