# SPDX-License-Identifier: MIT OR Apache-2.0
"""The result of race as a text with tables, and as a page: the input of `crates/report/examples/page.rs`."""

import json
import statistics

LOADS = ("mix", "warm-up", "restart", "sqlite", "scan", "write")
UNITS = {"sqlite": "transactions/s", "write": "MB/s", "scan": "requests/s of the hot set"}
WHAT = {
    "mix": "90 % reads, Zipf 1.2, 4 KiB, warm",
    "warm-up": "the same from a cold cache, until then",
    "restart": "the first seconds after a stop and a start",
    "sqlite": "the same mix as transactions on SQLite in ext4",
    "scan": "reads of a hot set beside a sequential reader",
    "write": "sequential writes of 128 KiB",
}
THROUGH = ("disk", "larder", "larder-nbd", "sce", "bcache-through", "dm-cache-through")
BACK = ("disk", "prwc", "face", "bcache-back", "dm-cache-back")
FRONT = {"flash": "bare flash", "ublk": "ublk", "nbd": "NBD", "vhost": "vhost-user", "qnbd": "QEMU's NBD driver"}


def number(value):
    """Three significant digits, or a whole number."""
    if value is None:
        return ""
    if abs(value) >= 100 or value == round(value):
        return f"{value:.0f}"
    return f"{value:.{2 if abs(value) < 10 else 1}f}"


def percent(value):
    return "" if value is None else f"{value * 100:.0f} %"


def median(values):
    values = [value for value in values if value is not None]
    return statistics.median(values) if values else None


def latency(rounds, key):
    """p50 / p99 in ms."""
    known = [one[key] for one in rounds if one.get(key)]
    if not known:
        return ""
    return f"{number(median(one[0] for one in known) / 1e3)} / {number(median(one[2] for one in known) / 1e3)}"


def operations(one):
    """Reads and writes of the slow disk for each request of the client: what throughput would be without the processors' limit."""
    requests = one["client_reads"] + one["client_writes"]
    return (one["origin_reads"] + one["origin_writes"]) / requests if requests else None


def grouped(result):
    """Entries by origin and load, then by row, in the order in which the rows are shown."""
    groups = {}
    for entry in result["entries"]:
        groups.setdefault((entry["origin"], entry["load"]), {}).setdefault(entry["row"], []).append(entry)
    order = list(dict.fromkeys(THROUGH + BACK))
    for key, rows in groups.items():
        groups[key] = dict(sorted(rows.items(), key=lambda row: order.index(row[0]) if row[0] in order else 99))
    return groups


def columns(load, rows):
    """Headings and lines of the table of a load."""
    heads = ["system", UNITS.get(load, "requests/s"), "over disk", "reads p50 / p99, ms", "writes p50 / p99, ms", "flash written, MiB",
             "origin read, MiB", "origin writes/s", "origin operations a request", "processors", "waited"]
    extra = {"warm-up": "90 % of its last after, s", "restart": "of its last", "scan": "scan, MB/s"}.get(load)
    if load in ("mix", "sqlite", "scan"):
        heads.append("flash KiB a read saved")
    if extra:
        heads.append(extra)
    bare, lines = median(one["throughput"] for one in rows.get("disk", [])), []
    for name, rounds in rows.items():
        throughput = median(one["throughput"] for one in rounds)
        cells = [
            name,
            number(throughput),
            number(throughput / bare) if bare else "",
            latency(rounds, "read_us"),
            latency(rounds, "write_us"),
            number(median(one["flash_written_bytes"] for one in rounds) / 2**20),
            number(median(one["origin_read_bytes"] for one in rounds) / 2**20),
            number(median(one["origin_writes"] / one["seconds"] for one in rounds)),
            number(median(operations(one) for one in rounds)),
            percent(median(one["busy"] for one in rounds)),
            percent(median(one["waited"] for one in rounds)),
        ]
        if load in ("mix", "sqlite", "scan"):
            saved = median(one.get("flash_bytes_per_saved_read") for one in rounds)
            cells.append("" if saved is None else number(saved / 1024))
        if load == "warm-up":
            cells.append(number(median(one["warm_after_s"] for one in rounds)))
        if load == "restart":
            cells.append(percent(median(one["of_last"] for one in rounds)))
        if load == "scan":
            cells.append(number(median(one["scan_mb_per_s"] for one in rounds)))
        lines.append(cells)
    return heads, lines


GOALS = {
    "through": ("larder over the better of bcache and dm-cache, write-through: throughput", ">= 1 everywhere, median >= 1.5"),
    "back": ("the better of prwc and face over the better of bcache and dm-cache, writeback: throughput", "median >= 1"),
    "flash": ("larder over the better of bcache and dm-cache, write-through: flash bytes a read saved", "<= 1"),
}


def reached(kind, ratio):
    return ratio <= 1 if kind == "flash" else ratio >= 1


def verdicts(result):
    """Title, headings and lines of the tables of ratios; a line ends with whether the goal was reached."""
    for kind, (title, goal) in GOALS.items():
        found, lines = result[kind], []
        for one in found["ratios"]:
            lines.append([one["origin"], one["load"], one["row"], one["beside"], number(one["ratio"]), reached(kind, one["ratio"])])
        if lines:
            wanted = {"through": 1.5, "back": 1, "flash": 1}[kind]
            good = found["median"] <= wanted if kind == "flash" else found["median"] >= wanted
            lines.append(["median", "", "", "", number(found["median"]), good])
            yield f"{title} (goal: {goal})", ["origin", "load", "ours", "beside", "ratio"], lines


def markdown(heads, lines):
    print("| " + " | ".join(heads) + " |")
    print("| " + " | ".join("---" for _ in heads) + " |")
    for line in lines:
        print("| " + " | ".join(line) + " |")
    print()


def text_of_fronts(result):
    print(f"random reads of 4 KiB, {percent(result['hit_share'])} hits, {result['measured_s']} s a turn, {result['accel']}\n")
    lines = [[FRONT[one["front"]], str(one["depth"]), number(one["iops"]), number(one["p50_us"]), number(one["p99_us"]), str(one["turns"])]
             for one in result["fronts"]]
    markdown(["device", "in flight", "IOPS", "p50, us", "p99, us", "turns"], lines)
    lines = [[f"{FRONT[one['row']]} / {FRONT[one['beside']]}", str(one["depth"]), number(one["iops_ratio"]), number(one["p50_ratio"]),
              number(one["p50_more_us"])] for one in result["ratios"]]
    markdown(["ratio", "in flight", "IOPS", "p50", "p50, us more"], lines)


def text(result):
    if result.get("fronts"):
        return text_of_fronts(result)
    print(f"volume {result['size_mib']} MiB, flash {result['flash_mib']} MiB, {result['measured_s']} s after {result['warm_s']} s, "
          f"cloud and array slowed {result['slower']} times, {result['accel']}\n")
    for (origin, load), rows in grouped(result).items():
        print(f"{origin}, {load}: {WHAT[load]}\n")
        markdown(*columns(load, rows))
    for title, heads, lines in verdicts(result):
        print(title + "\n")
        markdown([*heads, "goal"], [[*line[:-1], "reached" if line[-1] else "missed"] for line in lines])


def sheet(title, heads, lines):
    """A table of the page."""
    words = ("system", "origin", "load", "ours", "beside", "goal", "device", "ratio")
    names = [{"title": head, "number": head not in words and "/ p99" not in head} for head in heads]
    return {"title": title, "columns": names, "rows": [{"cells": line} for line in lines]}


def over_time(groups, origin, rows, title):
    """Throughput of the mix over time."""
    known = groups.get((origin, "mix"), {})
    series = [{"name": row, "points": known[row][0]["series"]} for row in rows if row in known]
    if any(one["name"] != "disk" for one in series):
        caption = "Requests of each second, from a cold cache. fio starts its second job at the dip."
        yield {"kind": "lines", "title": title, "caption": caption, "x": "seconds", "step": 1,
               "y": "requests/s", "series": series}


def by_load(groups, origin, rows, title):
    """Throughput over the disk for each load."""
    loads = [load for load in LOADS if "disk" in groups.get((origin, load), {})]
    series = []
    for row in rows:
        values = []
        for load in loads:
            found, bare = groups[origin, load].get(row), median(one["throughput"] for one in groups[origin, load]["disk"])
            values.append(median(one["throughput"] for one in found) / bare if found and bare else None)
        if row != "disk" and any(values):
            series.append({"name": row, "values": values})
    if series:
        yield {"kind": "columns", "title": title, "caption": "Throughput over that of the slow disk alone.", "groups": loads,
               "y": "over the disk", "series": series}


def short(row):
    """The name of a row in a picture that has rows of one write policy only."""
    return row.removesuffix("-through").removesuffix("-back")


def spreads(groups, origin, rows, title):
    """Latencies of reads under the mix."""
    known, found = groups.get((origin, "mix"), {}), []
    for row in rows:
        if row in known:
            us = [median(one["read_us"][n] for one in known[row]) for n in range(3)]
            found.append({"name": short(row), "p50": us[0] / 1e3, "p95": us[1] / 1e3, "p99": us[2] / 1e3})
    if any(one["name"] != "disk" for one in found):
        yield {"kind": "spreads", "title": title, "caption": "Reads of mix.", "unit": "ms", "spreads": found}


def flash_bars(groups, origin, rows, title):
    """Flash bytes for each read that the origin was saved."""
    known = groups.get((origin, "mix"), {})
    found = [[short(row), median(one["flash_bytes_per_saved_read"] for one in known[row])] for row in rows if row in known]
    found = [[row, value / 1024] for row, value in found if value]
    if found:
        yield {"kind": "bars", "title": title, "caption": "Under mix, from the cold start on.", "unit": "KiB", "bars": found}


def heat(groups, origins):
    """Each row over the best of the kernel's caches of the same contract."""
    loads, rows = [load for load in LOADS if any((origin, load) in groups for origin in origins)], []
    for names, peers in ((THROUGH, ("bcache-through", "dm-cache-through")), (BACK, ("bcache-back", "dm-cache-back"))):
        for row in names:
            if row in peers or row == "disk":
                continue
            values = []
            for origin in origins:
                for load in loads:
                    known = groups.get((origin, load), {})
                    best = max((median(one["throughput"] for one in known[peer]) for peer in peers if peer in known), default=None)
                    mine = median(one["throughput"] for one in known.get(row, []))
                    values.append(mine / best if mine is not None and best else None)
            if any(values):
                rows.append({"name": row, "values": values})
    if rows:
        yield {"kind": "heat", "title": "Over the better of bcache and dm-cache with the same write policy",
               "caption": "Throughput. Below 1 the kernel's cache is faster.", "groups": origins, "columns": loads, "rows": rows}


def page(result, command):
    if result.get("fronts"):
        lines = [[FRONT[one["front"]], *(number(one[key]) for key in ("depth", "iops", "p50_us", "p99_us"))] for one in result["fronts"]]
        parts = [{"tables": [sheet("Random reads that hit", ["device", "in flight", "IOPS", "p50, us", "p99, us"], lines)]}]
        print(json.dumps({"title": "Block devices of one volume", "command": command, "seeds": str(result["seed"]), "sections": parts}))
        return
    groups = grouped(result)
    origins = list(dict.fromkeys(origin for origin, _ in groups))
    ratios = []
    for title, heads, lines in verdicts(result):
        cells = [[*line[:-1], {"text": "reached" if line[-1] else "missed", "tone": "good" if line[-1] else "bad"}] for line in lines]
        ratios.append(sheet(title, [*heads, "goal"], cells))
    about = (f"The same loads on each system's block device, over the same slow disk and {result['flash_mib']} MiB of flash for "
             f"{result['size_mib']} MiB of data, in a virtual machine ({result['accel']}).")
    parts = [{"title": "Summary", "text": about, "tables": ratios, "figures": list(heat(groups, origins))}]
    for origin in origins:
        figures = [
            *over_time(groups, origin, THROUGH, "Write-through, over time"),
            *over_time(groups, origin, BACK, "Writeback, over time"),
            *by_load(groups, origin, THROUGH, "Write-through"),
            *by_load(groups, origin, BACK, "Writeback"),
            *spreads(groups, origin, THROUGH, "Write-through, latency of reads"),
            *spreads(groups, origin, BACK, "Writeback, latency of reads"),
            *flash_bars(groups, origin, THROUGH, "Write-through, flash written for a read saved"),
            *flash_bars(groups, origin, BACK, "Writeback, flash written for a read saved"),
        ]
        tables = [sheet(f"{load}: {WHAT[load]}", *columns(load, rows)) for (place, load), rows in groups.items() if place == origin]
        parts.append({"title": f"Origin {origin}", "figures": figures, "folded": tables})
    print(json.dumps({"title": "Larder beside bcache and dm-cache", "command": command, "seeds": str(result["seed"]), "sections": parts}))
