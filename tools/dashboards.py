"""Write the dashboards of the chart, for workers and for the pipeline, as Grafana reads them.

It needs `grafana-foundation-sdk`, which nothing else here does: docs/CONTRIBUTING.md says how to run it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from grafana_foundation_sdk.builders import common, dashboard, prometheus, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import LegendDisplayMode, LegendPlacement
from grafana_foundation_sdk.models.dashboard import (
    DashboardCursorSync,
    DataSourceRef,
    VariableOption,
    VariableRefresh,
)

DIRECTORY = Path(__file__).resolve().parents[1] / "helm" / "log-partitioner" / "files" / "dashboards"
SOURCE = DataSourceRef(type_val="prometheus", uid="$datasource")
PANELS_IN_A_ROW, GRID = 3, 24
_M = "log_partitioner_"
_W = '{job=~"$job", instance=~"$instance"}'
_G = '{group=~"$group"}'


class Panel(NamedTuple):
    """A panel: a title, a unit of Grafana, and its expressions, each with its legend."""

    title: str
    unit: str
    queries: Mapping[str, str]


def _rate(metric: str, by: str) -> str:
    return f"sum by ({by}) (rate({_of(metric)}[$__rate_interval]))"


def _of(metric: str, more: str = "") -> str:
    return f"{_M}{metric}{_W[:-1]}{', ' + more if more else ''}}}"


def _quantile(quantile: float, metric: str, by: str = "") -> str:
    labels = f"le, {by}" if by else "le"
    return f"histogram_quantile({quantile}, {_rate(f'{metric}_bucket', labels)})"


WORKER: Mapping[str, tuple[Panel, ...]] = {
    "Does it keep up?": (
        Panel("Lag, by the oldest record", "s", {"{{topic}}": f"max by (topic) ({_of('lag_seconds')})"}),
        Panel("Lag", "short", {"{{topic}}": f"sum by (topic) ({_of('lag_records')})"}),
        Panel("Since the last commit", "s", {"{{instance}}": f"time() - ({_of('last_commit_timestamp_seconds')} > 0)"}),
        Panel(
            "Entries a second",
            "short",
            {
                "written, by time of {{time}}": _rate("written_entries_total", "time"),
                "dead letters": _rate("dead_letter_entries_total", "job"),
            },
        ),
        Panel(
            "Dead letters a second, by reason", "short", {"{{reason}}": _rate("dead_letter_entries_total", "reason")}
        ),
        Panel("Records a second", "short", {"{{instance}}": _rate("records_total", "instance")}),
    ),
    "Workers": (
        Panel("Ready", "short", {"{{instance}}": _of("ready")}),
        Panel("TopicPartitions", "short", {"{{instance}}": _of("owned_topic_partitions")}),
        Panel("Rebalances an hour", "short", {"{{kind}}": f"sum by (kind) (increase({_of('rebalances_total')}[1h]))"}),
        Panel("Starts an hour", "short", {"{{instance}}": f"changes(process_start_time_seconds{_W}[1h])"}),
        Panel("CPU", "short", {"{{instance}}": f"rate(process_cpu_seconds_total{_W}[$__rate_interval])"}),
        Panel("Resident memory", "bytes", {"{{instance}}": f"process_resident_memory_bytes{_W}"}),
    ),
    "Flushes": (
        Panel(
            "Seconds of a flush",
            "s",
            {
                "median": _quantile(0.5, "flush_duration_seconds"),
                "99 %": _quantile(0.99, "flush_duration_seconds"),
                "99 % of revokes": _quantile(0.99, "revoke_duration_seconds"),
            },
        ),
        Panel("Seconds of each step, 90 %", "s", {"{{step}}": _quantile(0.9, "flush_step_duration_seconds", "step")}),
        Panel(
            "Flushes a second, by reason and outcome",
            "short",
            {"{{reason}}, {{outcome}}": _rate("flushes_total", "reason, outcome")},
        ),
        Panel(
            "Batches discarded an hour",
            "short",
            {"{{cause}}": f"sum by (cause) (increase({_of('batches_discarded_total')}[1h]))"},
        ),
        Panel(
            "Objects and references a second",
            "short",
            {"objects": _rate("objects_total", "job"), "references": _rate("references_total", "job")},
        ),
        Panel("Bytes of objects a second", "Bps", {"{{instance}}": _rate("object_bytes_total", "instance")}),
    ),
    "Store and disk": (
        Panel(
            "Requests a second, by answer",
            "short",
            {"{{operation}}: {{code}}": _rate("store_requests_total", "operation, code")},
        ),
        Panel(
            "Seconds of a request, 90 %",
            "s",
            {"{{operation}}": _quantile(0.9, "store_request_duration_seconds", "operation")},
        ),
        Panel("PUTs sent again a second", "short", {"{{instance}}": _rate("store_retries_total", "instance")}),
        Panel("Spool", "percentunit", {"{{instance}}": f"{_of('spool_bytes')} / {_of('spool_limit_bytes')}"}),
        Panel(
            "Memory of the open batch",
            "percentunit",
            {"{{instance}}": f"{_of('memory_bytes')} / {_of('memory_limit_bytes')}"},
        ),
        Panel(
            "Records through Python a second", "short", {"{{instance}}": _rate("slow_lane_records_total", "instance")}
        ),
    ),
    "Trouble": (
        Panel(
            "Stands still",
            "short",
            {"backs off: {{instance}}": _of("backoff"), "looks for a record: {{instance}}": _of("crash_isolation")},
        ),
        Panel("TopicPartitions held", "short", {"{{instance}}": _of("held_topic_partitions")}),
        Panel("Open transaction of the source", "s", {"{{instance}}": _of("open_transaction_seconds")}),
    ),
}
PIPELINE: Mapping[str, tuple[Panel, ...]] = {
    "Table": (
        Panel("Since it had everything", "s", {"{{group}}": f"time() - {_M}table_caught_up_timestamp_seconds{_G}"}),
        Panel("Offsets of references behind", "short", {"{{group}}": f"{_M}table_offsets_behind{_G}"}),
        Panel("Since the last commit", "s", {"{{group}}": f"time() - {_M}table_last_commit_timestamp_seconds{_G}"}),
    ),
    "Audit": (
        Panel("Findings of the last audit", "short", {"{{kind}}": f"{_M}audit_findings{_G}"}),
        Panel("Exit code", "short", {"{{group}}": f"{_M}audit_exit_code{_G}"}),
        Panel("Since one was clean", "s", {"{{group}}": f"time() - {_M}audit_last_success_timestamp_seconds{_G}"}),
        Panel("Since the last", "s", {"{{group}}": f"time() - {_M}audit_timestamp_seconds{_G}"}),
        Panel("Seconds it took", "s", {"{{group}}": f"{_M}audit_duration_seconds{_G}"}),
    ),
}


def _variable(name: str, metric: str) -> Any:
    return (
        dashboard.QueryVariable(name)
        .datasource(SOURCE)
        .query(f"label_values({metric}, {name})")
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .multi(multi=True)
        .include_all(include_all=True)
        .current(VariableOption(selected=True, text="All", value="$__all"))
    )


def _panel(panel: Panel) -> Any:
    legend = common.VizLegendOptions().display_mode(LegendDisplayMode.LIST).placement(LegendPlacement.BOTTOM)
    built = (
        timeseries.Panel()
        .title(panel.title)
        .unit(panel.unit)
        .min(0)
        .span(GRID // PANELS_IN_A_ROW)
        .height(7)
        .datasource(SOURCE)
        .legend(legend.show_legend(show_legend=True))
    )
    for ref_id, (name, expression) in zip("ABCDEF", panel.queries.items(), strict=False):
        query = prometheus.Dataquery().ref_id(ref_id).expr(expression).legend_format(name)
        built = built.with_target(query.datasource(SOURCE))
    return built


def board(name: str, title: str, rows: Mapping[str, tuple[Panel, ...]], variables: Mapping[str, str]) -> str:
    """Write a dashboard as JSON; `variables` are labels to choose by, and a metric that has each."""
    built = (
        dashboard.Dashboard(title)
        .uid(f"log-partitioner-{name}")
        .tags(["log-partitioner"])
        .refresh("30s")
        .time("now-6h", "now")
        .timezone("browser")
        .readonly()
        .tooltip(DashboardCursorSync.CROSSHAIR)
        .with_variable(dashboard.DatasourceVariable("datasource").type("prometheus"))
    )
    for label, metric in variables.items():
        built = built.with_variable(_variable(label, metric))
    for row, panels in rows.items():
        built = built.with_row(dashboard.Row(row))
        for panel in panels:
            built = built.with_panel(_panel(panel))
    text: str = JSONEncoder(sort_keys=True, indent=2).encode(built.build())
    return f"{text}\n"


def boards() -> dict[str, str]:
    """Write all dashboards: file name -> text."""
    build_info, findings = f"{_M}build_info", f"{_M}audit_findings"
    return {
        "worker.json": board("worker", "log-partitioner workers", WORKER, {"job": build_info, "instance": build_info}),
        "pipeline.json": board("pipeline", "log-partitioner pipeline", PIPELINE, {"group": findings}),
    }


if __name__ == "__main__":
    for file, text in boards().items():
        (DIRECTORY / file).write_text(text, encoding="utf-8")
