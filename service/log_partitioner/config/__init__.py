"""Settings, their sources, the rules between them, and the rules for core that follow from them."""
