"""How fast the S3 fault proxy lets requests through."""

from tools.local.s3_pace import Pace


class _Time:
    """A clock that goes on when someone sleeps."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def now(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds


def _pace() -> tuple[Pace, _Time]:
    time = _Time()
    return Pace(clock=time.now, sleep=time.sleep), time


def test_without_rates_everything_passes_at_once() -> None:
    pace, time = _pace()

    assert [pace.admit_put() for _ in range(100)] == [True] * 100
    pace.pass_bytes(1_000_000_000)
    assert time.now_s == 100.0


def test_puts_over_the_rate_are_refused_until_the_next_second() -> None:
    pace, time = _pace()
    pace.set(puts_per_s=8)

    assert sum(pace.admit_put() for _ in range(100)) == 8
    time.sleep(1)
    assert sum(pace.admit_put() for _ in range(100)) == 8
    time.sleep(60)
    assert sum(pace.admit_put() for _ in range(100)) == 8


def test_puts_wait_where_none_is_refused() -> None:
    pace, time = _pace()
    pace.set(puts_per_s=8, is_refusing=False)

    assert all(pace.admit_put() for _ in range(80))
    assert time.now_s == 110.0


def test_bytes_take_their_time_and_a_lifted_rate_none() -> None:
    pace, time = _pace()
    pace.set(bytes_per_s=1024)

    pace.pass_bytes(1024)
    pace.pass_bytes(4096)
    assert time.now_s == 105.0
    pace.set()
    pace.pass_bytes(4096)
    assert time.now_s == 105.0
