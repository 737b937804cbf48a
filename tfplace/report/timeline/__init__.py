"""The timeline: what moved, when, and who waited, for chrome://tracing and Perfetto."""
