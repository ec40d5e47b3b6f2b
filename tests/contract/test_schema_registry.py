"""Schemas by id, with all that they refer to; and what is said if a registry does not give one."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from log_partitioner.adapters import schema_registry
from log_partitioner.adapters.schema_registry import AGAIN_S, UNKNOWN_S, SchemaRegistry
from log_partitioner.config.registry_settings import RegistrySettings
from log_partitioner.control.deadline import Deadline
from log_partitioner.errors import RegistryError, SettingsError, StopError, UnmetError
from log_partitioner.formats.schema import Schema, SchemaRef
from tests.contract.deaf_brokers import closed_port
from tests.contract.fake_registry import FakeRegistry, serving
from tests.fakes.clock import FakeClock
from tests.stack.certificates import Certificates

pytestmark = pytest.mark.filterwarnings("ignore:unclosed <socket.socket:ResourceWarning")


@pytest.fixture
def fake() -> Iterator[FakeRegistry]:
    """Serve a registry."""
    fake = FakeRegistry()
    with serving(fake):
        yield fake


@pytest.fixture
def clock() -> FakeClock:
    """Stand for the time since the worker began."""
    return FakeClock()


def client(fake: FakeRegistry, clock: FakeClock, **settings: object) -> SchemaRegistry:
    return SchemaRegistry(RegistrySettings.model_validate({"url": fake.url, **settings}), clock.now_s)


def find(registry: SchemaRegistry, number: int) -> Schema | None:
    return registry.find(SchemaRef("id", number), deadline=Deadline.after(5, time.monotonic))


def test_a_schema_comes_with_what_it_refers_to_the_innermost_first(fake: FakeRegistry, clock: FakeClock) -> None:
    fake.register("unit", "U")
    fake.register("a b/c", "C", (("Unit", "unit", 1),))
    number = fake.register("logs", "L", (("Context", "a b/c", 1), ("Unit", "unit", 1)))

    found = find(client(fake, clock), number)

    assert found == Schema("L", (("Unit", "U"), ("Context", "C")))


def test_a_cycle_of_references_ends(fake: FakeRegistry, clock: FakeClock) -> None:
    fake.register("a", "A", (("B", "b", 1),))
    fake.register("b", "B", (("A", "a", 1),))

    assert find(client(fake, clock), 1) == Schema("A", (("A", "A"), ("B", "B")))


def test_a_schema_is_asked_for_once(fake: FakeRegistry, clock: FakeClock) -> None:
    registry, number = client(fake, clock), fake.register("logs", "L")
    guid = SchemaRef("guid", fake.schemas[0]["guid"])

    assert [find(registry, number), find(registry, number)] == [Schema("L")] * 2
    assert registry.find(guid, deadline=Deadline.after(5, time.monotonic)) == Schema("L")
    assert len(fake.asked) == 2


def test_what_is_kept_is_bounded_by_its_size(
    fake: FakeRegistry, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one used last stays."""
    monkeypatch.setattr(schema_registry, "CACHE_SIZE_MAX", 2500)
    registry = client(fake, clock)
    for text in "abc":
        fake.register(text, text * 1000)

    for number in (1, 2, 1, 3, 1, 2):
        find(registry, number)

    assert [path.rpartition("/")[2] for path in fake.asked] == ["1", "2", "3", "2"]


def test_an_id_that_is_found_a_moment_later_is_no_unknown_one(fake: FakeRegistry, clock: FakeClock) -> None:
    registry = client(fake, clock)
    for _ in range(3):
        with pytest.raises(RegistryError, match="does not know id 1 yet") as caught:
            find(registry, 1)
        assert caught.value.cause == "unknown"
        clock.advance(UNKNOWN_S / 3 - 0.1)
    assert registry.trouble is not None

    fake.register("logs", "L")

    assert (find(registry, 1), registry.trouble) == (Schema("L"), None)


def test_an_id_that_stays_unknown_is_given_up_for_good(fake: FakeRegistry, clock: FakeClock) -> None:
    registry = client(fake, clock)
    with pytest.raises(RegistryError):
        find(registry, 1)
    clock.advance(UNKNOWN_S)

    assert [find(registry, 1), find(registry, 1)] == [None, None]
    assert (len(fake.asked), registry.trouble) == (2, None)


@pytest.mark.parametrize("status", [429, 500, 503, 302, 404])
def test_any_other_answer_is_none(fake: FakeRegistry, clock: FakeClock, status: int) -> None:
    """A 404 that names no schema comes from a wrong address: no record is dead for it."""
    registry, number = client(fake, clock), fake.register("logs", "L")
    fake.status = status

    for _ in range(2):
        with pytest.raises(RegistryError, match=f"it answers {status}") as caught:
            find(registry, number)
        clock.advance(UNKNOWN_S)
    with pytest.raises(UnmetError):
        registry.check()
    fake.status = 200
    clock.advance(AGAIN_S)

    assert caught.value.cause == "unanswered"
    assert find(registry, number) == Schema("L")


@pytest.mark.parametrize("raw", [b"<html>", b"[]", b"{}", b'{"schema": 1}', b"\xff"])
def test_an_answer_without_a_schema_is_none(fake: FakeRegistry, clock: FakeClock, raw: bytes) -> None:
    fake.raw = raw

    with pytest.raises(RegistryError, match="holds no schema"):
        find(client(fake, clock), 1)


def test_nobody_listens(clock: FakeClock) -> None:
    registry = SchemaRegistry(RegistrySettings(url=f"http://{closed_port()}"), clock.now_s)

    with pytest.raises(RegistryError, match="Connection refused"):
        find(registry, 1)
    with pytest.raises(UnmetError):
        registry.check()


def test_an_answer_that_trickles_ends_by_the_deadline(fake: FakeRegistry, clock: FakeClock) -> None:
    registry, number = client(fake, clock), fake.register("logs", "L" * 1000)
    fake.trickle_s, begun_s = 0.02, time.monotonic()

    with pytest.raises(RegistryError, match="takes longer"):
        registry.find(SchemaRef("id", number), deadline=Deadline.after(0.3, time.monotonic))

    assert time.monotonic() - begun_s < 3


def test_an_endless_answer_is_cut(fake: FakeRegistry, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema_registry, "ANSWER_BYTES_MAX", 1000)
    number = fake.register("logs", "L" * 1000)

    with pytest.raises(RegistryError, match="1000 bytes"):
        find(client(fake, clock), number)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [({"user": "u", "password": SecretStr("p:w")}, "Basic dTpwOnc="), ({"token": SecretStr("t")}, "Bearer t")],
)
def test_credentials_are_sent_and_their_refusal_is_told(
    fake: FakeRegistry, clock: FakeClock, settings: dict[str, object], expected: str
) -> None:
    number = fake.register("logs", "L")
    fake.authorization = expected

    assert find(client(fake, clock, **settings), number) == Schema("L")
    with pytest.raises(RegistryError) as caught:
        find(client(fake, clock), number)
    assert caught.value.cause == "refused"
    with pytest.raises(SettingsError, match="refuses us"):
        client(fake, clock).check()
    client(fake, clock, **settings).check()


def test_a_registry_that_wants_a_certificate_is_asked_with_ours(tmp_path: Path, clock: FakeClock) -> None:
    authority = Certificates(tmp_path)
    (server, server_key), (own, own_key) = authority.sign("registry"), authority.sign("worker-1")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=authority.authority)
    tls.load_cert_chain(server, server_key)
    tls.verify_mode = ssl.CERT_REQUIRED
    fake = FakeRegistry()
    number = fake.register("logs", "L")

    with serving(fake, tls=tls):
        ours = {"ca_file": authority.authority, "certificate_file": own, "key_file": own_key}
        assert find(client(fake, clock, **ours), number) == Schema("L")
        for settings in ({"ca_file": authority.authority}, {"certificate_file": own, "key_file": own_key}):
            with pytest.raises(RegistryError) as caught:
                find(client(fake, clock, **settings), number)
            assert caught.value.cause == "unanswered"
    assert len(fake.asked) == 1


def test_a_certificate_that_cannot_be_read_is_named(tmp_path: Path, clock: FakeClock) -> None:
    (tmp_path / "ca.pem").write_text("nothing")

    with pytest.raises(StopError, match=r"ca\.pem"):
        SchemaRegistry(RegistrySettings(url="https://r", ca_file=tmp_path / "ca.pem"), clock.now_s)


def test_a_silent_registry_is_not_asked_for_each_of_many_schemas(fake: FakeRegistry, clock: FakeClock) -> None:
    """Each question could take seconds, and the loop has to poll."""
    registry = client(fake, clock)
    fake.status = 503

    for number in range(100):
        with pytest.raises(RegistryError, match="503"):
            find(registry, number)

    assert len(fake.asked) == 1
