"""Wire format to columns and messages."""
