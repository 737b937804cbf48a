"""The Trace: typed tables in which every reader and every analysis meet."""
