"""Files to a Trace. Never imports tensorflow."""
