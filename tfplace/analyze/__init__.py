"""Pure functions over the tables of a Trace: what crosses, what it carries, where it lives, why."""
