"""Settings, where they come from, the rules between them, and what they come to."""
