"""One Report, rendered for a terminal, as JSON or as Markdown."""
