"""A real Prometheus that scrapes processes of this machine, with rules if any are given."""

import json
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

from tests.deployment.tools import find
from tools.local.ports import find_free_ports
from tools.local.processes import ServerProcess


class Prometheus:
    """A server of its own; it scrapes `targets`, ports by job, and judges `rules` at each `interval`."""

    def __init__(
        self, directory: Path, targets: Mapping[str, Sequence[int]], *, rules: str = "", interval: str = "1s"
    ) -> None:
        (self.port,) = find_free_ports(1)
        directory.mkdir(parents=True, exist_ok=True)
        self._targets = directory / "targets.json"
        self.scrape(targets)
        (directory / "rules.yaml").write_text(rules)
        config = directory / "prometheus.yml"
        times = {"scrape_interval": interval, "scrape_timeout": "1s", "evaluation_interval": interval}
        scraped = [{"job_name": "given", "file_sd_configs": [{"files": [self._targets.name]}]}]
        config.write_text(json.dumps({"global": times, "rule_files": ["rules.yaml"], "scrape_configs": scraped}))
        command = [
            str(find("prometheus")),
            f"--config.file={config}",
            f"--storage.tsdb.path={directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]
        self.process = ServerProcess("prometheus", command, log=directory / "prometheus.log")

    def scrape(self, targets: Mapping[str, Sequence[int]]) -> None:
        """Scrape these ports, by job, from now on."""
        found = [
            {"targets": [f"127.0.0.1:{port}" for port in ports], "labels": {"job": job}}
            for job, ports in targets.items()
        ]
        new = self._targets.with_suffix(".new")
        new.write_text(json.dumps(found))
        new.replace(self._targets)

    def ask(self, expression: str) -> list[dict[str, Any]]:
        """Return the series of an instant; none while the server starts."""
        found: list[dict[str, Any]] = self._get("query", query=expression).get("result", [])
        return found

    def told(self, expression: str) -> str:
        """Return the values of an instant as text, by instance."""
        return "\n".join(f"{one['metric'].get('instance')} {one['value'][1]}" for one in self.ask(expression))

    def alerts(self) -> list[dict[str, Any]]:
        """Return the alerts that are pending or firing; none while the server starts."""
        found: list[dict[str, Any]] = self._get("alerts").get("alerts", [])
        return found

    def _get(self, what: str, **parameters: str) -> dict[str, Any]:
        url = f"http://127.0.0.1:{self.port}/api/v1/{what}?{urllib.parse.urlencode(parameters)}"
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                data: dict[str, Any] = json.load(answer)["data"]
        except urllib.error.HTTPError as error:
            with error:
                if error.code == HTTPStatus.SERVICE_UNAVAILABLE:  # it starts
                    return {}
                raise AssertionError(f"{url}: {error.read().decode()}") from error
        except OSError:
            return {}
        return data
