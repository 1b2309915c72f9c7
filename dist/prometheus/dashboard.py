#!/usr/bin/env python3
# SPDX-License-Identifier: MIT OR Apache-2.0
"""Makes grafana-dashboard.json, by Grafana's own SDK: python3 dashboard.py > grafana-dashboard.json

Needs: pip install 'grafana-foundation-sdk==1769699998!10.1.0'. The SDK knows the form of Grafana 10.1, which later versions read.

Every expression selects `instance` and `volume`, the variables at the top. Where several volumes share a cache, figures of flash
have the cache's name as `volume`.
"""

from grafana_foundation_sdk.builders import dashboard, prometheus, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.dashboard import DataSourceRef, VariableRefresh

SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
RATE = "$__rate_interval"


def of(metric: str, more: str = "") -> str:
    """The selected series of a metric."""
    return f'{metric}{{instance=~"$instance", volume=~"$volume"{more}}}'


def rate(metric: str, more: str = "") -> str:
    """What a counter grew by in a second."""
    return f"rate({of(metric, more)}[{RATE}])"


def quantile(share: float, request: str) -> str:
    """A quantile of the latency of requests of a kind."""
    buckets = rate("larder_request_seconds_bucket", f', request="{request}"')
    return f"histogram_quantile({share}, sum by (le, volume) ({buckets}))"


ROWS: list[tuple[str, list[tuple[str, str, str, list[tuple[str, str]]]]]] = [
    (
        "Clients",
        [
            (
                "Hit ratio",
                "Share of client reads of which flash had all data.",
                "percentunit",
                [(f"{rate('larder_read_hits_total')} / {rate('larder_reads_total')}", "{{volume}}")],
            ),
            (
                "Requests",
                "Client reads and writes.",
                "reqps",
                [(rate("larder_reads_total"), "{{volume}} reads"), (rate("larder_writes_total"), "{{volume}} writes")],
            ),
            (
                "Latency of reads",
                "Median and 99th percentile of hits and misses.",
                "s",
                [
                    (quantile(0.5, "read_hit"), "{{volume}} hit p50"),
                    (quantile(0.99, "read_hit"), "{{volume}} hit p99"),
                    (quantile(0.5, "read_miss"), "{{volume}} miss p50"),
                    (quantile(0.99, "read_miss"), "{{volume}} miss p99"),
                ],
            ),
            (
                "Latency of writes and FLUSH",
                "Median and 99th percentile.",
                "s",
                [
                    (quantile(0.5, "write"), "{{volume}} write p50"),
                    (quantile(0.99, "write"), "{{volume}} write p99"),
                    (quantile(0.99, "flush"), "{{volume}} flush p99"),
                ],
            ),
            (
                "Throughput of clients",
                "Bytes that clients read and write.",
                "Bps",
                [(rate("larder_read_bytes_total"), "{{volume}} read"), (rate("larder_write_bytes_total"), "{{volume}} written")],
            ),
            (
                "Clients and their requests",
                "Connections, and requests in flight.",
                "short",
                [(of("larder_connections"), "{{volume}} connections"), (of("larder_requests_open"), "{{volume}} requests")],
            ),
        ],
    ),
    (
        "Devices",
        [
            (
                "Origin",
                "Bytes read (population included) and written.",
                "Bps",
                [
                    (rate("larder_origin_read_bytes_total"), "{{volume}} read"),
                    (rate("larder_origin_write_bytes_total"), "{{volume}} written"),
                ],
            ),
            (
                "Flash",
                "Bytes read and written.",
                "Bps",
                [
                    (rate("larder_flash_read_bytes_total"), "{{volume}} read"),
                    (rate("larder_flash_write_bytes_total"), "{{volume}} written"),
                ],
            ),
            (
                "Failures",
                "Operations that failed or were overdue, and pages that did not match their checksum, in an hour.",
                "short",
                [
                    (f"increase({of('larder_origin_errors_total')}[1h])", "{{volume}} origin errors"),
                    (f"increase({of('larder_flash_errors_total')}[1h])", "{{volume}} flash errors"),
                    (f"increase({of('larder_flash_timeouts_total')}[1h])", "{{volume}} flash overdue"),
                    (f"increase({of('larder_damaged_pages_total')}[1h])", "{{volume}} damaged pages"),
                ],
            ),
            (
                "State",
                "1 for the state that the volume is in, and for an alarm.",
                "short",
                [(f"{of('larder_state')} == 1", "{{volume}} {{state}}"), (f"{of('larder_alarm')} == 1", "{{volume}} ALARM")],
            ),
        ],
    ),
    (
        "Cache",
        [
            (
                "Units on flash",
                "In use, pinned and dirty, as shares of all units.",
                "percentunit",
                [
                    (f"{of('larder_units_used')} / {of('larder_units')}", "{{volume}} in use"),
                    (f"{of('larder_units_pinned')} / {of('larder_units')}", "{{volume}} pinned"),
                    (f"{of('larder_units_dirty')} / {of('larder_units')}", "{{volume}} dirty"),
                ],
            ),
            (
                "Population and eviction",
                "Units copied to flash, and evicted.",
                "ops",
                [(rate("larder_populations_total"), "{{volume}} populated"), (rate("larder_evictions_total"), "{{volume}} evicted")],
            ),
            (
                "Flash writes of a day",
                "What was written in the last day, the forecast since the start, and the budget.",
                "bytes",
                [
                    (f"increase({of('larder_flash_write_bytes_total')}[1d])", "{{volume}} written"),
                    (of("larder_flash_write_forecast_bytes"), "{{volume}} forecast"),
                    (f"{of('larder_flash_write_budget_bytes')} > 0", "{{volume}} budget"),
                ],
            ),
            (
                "Hit ratio of other sizes",
                "What an LRU cache of each size would hit, by the requests of late.",
                "percentunit",
                [(of("larder_curve_hit_ratio"), "{{volume}} {{flash_bytes}} bytes")],
            ),
            (
                "Memory",
                "Of the engine, of clients' requests, and kept for reuse.",
                "bytes",
                [
                    (of("larder_memory_bytes"), "{{volume}} all"),
                    (of("larder_client_bytes"), "{{volume}} clients"),
                    (of("larder_kept_bytes"), "{{volume}} kept"),
                ],
            ),
            (
                "Processor time",
                "Of the server, in processors.",
                "short",
                [(f'rate(process_cpu_seconds_total{{instance=~"$instance"}}[{RATE}]) and on (instance, job) larder_build_info', "{{instance}}")],
            ),
        ],
    ),
]


def panel(title: str, about: str, unit: str, targets: list[tuple[str, str]]) -> timeseries.Panel:
    """A graph, half as wide as the page."""
    made = timeseries.Panel().title(title).description(about).unit(unit).min(0).datasource(SOURCE).height(8).span(12)
    for number, (expression, legend) in enumerate(targets):
        query = prometheus.Dataquery().expr(expression).legend_format(legend).range().ref_id(chr(ord("A") + number))
        made = made.with_target(query)
    return made


def variable(name: str, label: str, query: str) -> dashboard.QueryVariable:
    """Values of a label, all of which are selected at first."""
    made = dashboard.QueryVariable(name).label(label).query(query).datasource(SOURCE).refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
    return made.multi(True).include_all(True).all_value(".*")


def build() -> dashboard.Dashboard:
    """The dashboard."""
    made = dashboard.Dashboard("Larder volumes").uid("larder-volumes").tags(["larder"]).refresh("30s").time("now-6h", "now")
    made = made.timezone("browser").with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    made = made.with_variable(variable("instance", "Server", "label_values(larder_up, instance)"))
    made = made.with_variable(variable("volume", "Volume", 'label_values(larder_up{instance=~"$instance"}, volume)'))
    for title, panels in ROWS:
        made = made.with_row(dashboard.Row(title))
        for about in panels:
            made = made.with_panel(panel(*about))
    return made


if __name__ == "__main__":
    print(JSONEncoder(sort_keys=True, indent=2).encode(build().build()))
