"""The shell: decides nothing, performs effects. Sees the outside world through `ports` only."""
