"""Columns and graphs of one or more files to the tables of one Trace."""
