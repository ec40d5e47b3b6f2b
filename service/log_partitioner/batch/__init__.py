"""Everything accepted since the last commit: rows, progress, objects, messages. Pure but for its spool."""
