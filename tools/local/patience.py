"""How long to wait for something that may be slow: as long as it moves, not until an hour strikes."""


class Patience:
    """Is over when the observed value has stayed the same for `window_s` seconds; a slow machine does not end it."""

    def __init__(self, window_s: float) -> None:
        self.window_s = window_s
        self._mark: object = None
        self._moved_at: float | None = None

    def is_over(self, mark: object, now_s: float) -> bool:
        """Say whether `mark` has been the same for the whole window; a new one begins the window anew."""
        if self._moved_at is None or mark != self._mark:
            self._mark, self._moved_at = mark, now_s
        return now_s - self._moved_at >= self.window_s
