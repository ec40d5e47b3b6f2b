"""Everything accepted since the last commit: rows, what is covered, objects, messages. Pure but for its spool."""
