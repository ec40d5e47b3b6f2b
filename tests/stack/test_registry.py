"""Schemas that a real registry has, by each of its names for them (Apicurio; GUIDs are asked of the fake one only)."""

import json
import time
from collections.abc import Iterator

import pytest

from log_partitioner.adapters.schema_registry import SchemaRegistry
from log_partitioner.config.registry_settings import RegistrySettings
from log_partitioner.control.deadline import Deadline
from log_partitioner.errors import RegistryError, UnmetError
from log_partitioner.formats.schema import Kind, Schema, SchemaRef
from tests.stack.providers import REPOSITORY
from tools.local.registry import APICURIOS, CONFLUENTS, RegistryServer, ensure_registry

pytestmark = [pytest.mark.integration, pytest.mark.slow]

CONTEXT = '{"type":"record","name":"Context","namespace":"x","fields":[{"name":"host","type":"string"}]}'
LOG = '{"type":"record","name":"Log","namespace":"x","fields":[{"name":"context","type":"x.Context"}]}'


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RegistryServer]:
    """Serve a registry."""
    jar = ensure_registry(REPOSITORY / ".local" / "jars")
    with RegistryServer(jar=jar, root=tmp_path_factory.mktemp("registry")) as server:
        yield server


def find(server: RegistryServer, ref: SchemaRef, api: str = CONFLUENTS) -> Schema | None:
    """Ask for a schema."""
    registry = SchemaRegistry(RegistrySettings(url=server.address + api))
    registry.check(ref.kind)
    return registry.find(ref, deadline=Deadline.after(30, time.monotonic))


def test_a_schema_comes_with_its_references(server: RegistryServer) -> None:
    server.register("context", CONTEXT)
    number = server.register("logs-value", LOG, references=[{"name": "x.Context", "subject": "context", "version": 1}])

    assert find(server, SchemaRef("id", number)) == Schema(LOG, (("x.Context", CONTEXT),))
    by_global_id = find(server, SchemaRef("global_id", number), APICURIOS)
    assert by_global_id is not None
    (field,) = json.loads(by_global_id.text)["fields"]
    assert (field["type"]["name"], by_global_id.references) == ("Context", ())


@pytest.mark.parametrize(("kind", "api"), [("id", CONFLUENTS), ("global_id", APICURIOS)])
def test_an_unknown_id_is_told_from_a_wrong_address(server: RegistryServer, kind: Kind, api: str) -> None:
    ref = SchemaRef(kind, 999_999)

    with pytest.raises(RegistryError) as caught:
        find(server, ref, api)
    assert caught.value.cause == "unknown"
    with pytest.raises(UnmetError, match="answers 404"):
        find(server, ref, "/nowhere")
