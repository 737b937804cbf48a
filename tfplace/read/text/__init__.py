"""Text format to columns and messages: a fast path for canonical text, a tokenizer for any other."""
