"""Conversion of results to the rows of the table: measure, Turnout, peer, ratio, target, met. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from typing import Any

import usage_table
from environments import DEEPHAVENS, FAST_CYCLE
from processors import KINDS
from sustained import bounded

Results = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Row:
    """A row of the table; `met` is None if there is no target."""

    measure: str
    turnout: str
    peer: str = ""
    ratio: str = ""
    target: str = ""
    met: bool | None = None

    @property
    def cells(self) -> tuple[str, ...]:
        answer = {True: "yes", False: "no", None: ""}[self.met]
        return self.measure, self.turnout, self.peer, self.ratio, self.target, answer


COLUMNS = ("measure", "Turnout", "peer", "ratio", "target", "met")
CATCH_UP_TARGETS = {
    ("1 record a key", "cold"): 1.1,
    ("1 record a key", "warm"): 1.4,
    ("5 updates a key", "cold"): 1.0,
    ("5 updates a key", "warm"): 1.2,
}
"""The minimum ratios of rates, compared with the newest Deephaven."""


def rows(measures: Results) -> list[Row]:
    """Return the rows of all measures in the results, in the order of the table."""
    makers: dict[str, Callable[[Results], Iterator[Row]]] = {
        "catch-up": _catch_up,
        "latency": _latency,
        "sustained": _sustained,
        "swap": _swap,
        "kept": _kept,
        "beside": _beside,
        "growth": _growth,
        "viewers": _viewers,
        "summaries": _summaries,
        "start": _start,
        "idle": _idle,
        "starved": _starved,
        "cluster": _cluster,
        "capacity": _capacity,
    }
    return [row for name, make in makers.items() if name in measures for row in make(measures[name])]


def spread(values: list[float], unit: str = " s", digits: int = 1) -> str:
    """Format the median, the minimum and the maximum, and the number of runs if there are fewer than three."""
    middle = f"{statistics.median(values):,.{digits}f}{unit}"
    if len(values) == 1:
        return f"{middle} (1 run)"
    few = "2 runs, " if len(values) == 2 else ""
    return f"{middle} ({few}{min(values):,.{digits}f}-{max(values):,.{digits}f})"


def _catch_up(results: Results) -> Iterator[Row]:
    for variant, systems in results["variants"].items():
        name = f"catch-up, {2 * results['records']:,} records, {variant}"
        for way, peer in product(("cold", "warm"), DEEPHAVENS):
            target = CATCH_UP_TARGETS[variant, way] if peer == DEEPHAVENS[0] else None
            yield _against(f"{name}, {way}", systems[f"Turnout {way}"], peer, systems.get(f"{peer} {way}"), target)
        for way in ("cold", "warm"):
            yield _against(f"{name}, {way}", systems[f"Turnout {way}"], "raw librdkafka", systems.get("raw"), 0.35)
        for peer in ("Kafka Streams", "Pathway", "PySpark stateful", "Flink SQL"):
            if taken := systems.get(f"{peer} cold"):
                yield _against(f"{name}, cold", systems["Turnout cold"], peer, taken)
    for peer, reason in results["not_run"].items():
        yield Row("catch-up", "", f"{peer}: not run: {reason}")
    memory = results["memory_mb"]
    if "Turnout" in memory:
        yield from _memory(memory)


def _against(name: str, own: list[float], peer: str, other: list[float] | None, least: float | None = None) -> Row:
    """Return a row that compares rates: 2 x is twice as fast as the peer; `least` is the target."""
    target = "" if least is None else f"at least {least:g} x"
    if not other:
        return Row(name, spread(own), f"{peer}: not run", "", target)
    ratio = statistics.median(other) / statistics.median(own)
    met = None if least is None else ratio >= least
    return Row(name, spread(own), f"{peer} {spread(other)}", f"{ratio:.2f} x", target, met)


def _under(name: str, taken: list[float], most: float, unit: str = " s", digits: int = 1) -> Row:
    """Return a row whose median must be under a target."""
    return Row(name, spread(taken, unit, digits), "", "", f"under {most:g}{unit}", statistics.median(taken) < most)


def _to_itself(name: str, taken: list[float], base: tuple[str, list[float]], most: float | None, unit: str) -> Row:
    """Return a row that compares a measure with itself under other conditions; less is better."""
    words, other = base
    digits = 0 if unit == " ms" else 2
    ratio = statistics.median(taken) / statistics.median(other)
    return Row(
        name,
        spread(taken, unit, digits),
        f"itself {words} {spread(other, unit, digits)}",
        f"{ratio:.2f} x",
        "" if most is None else f"at most {most:g} x",
        None if most is None else ratio <= most,
    )


def _memory(memory: Results) -> Iterator[Row]:
    own, name = memory["Turnout"], "memory of all processes after the catch-up, 1 record a key"
    for peer in DEEPHAVENS:
        most = 0.8 if peer == DEEPHAVENS[0] else None
        yield _at_most(name, own, peer, memory.get(peer), most, " MB")


def _at_most(name: str, own: list[float], peer: str, other: list[float] | None, most: float | None, unit: str) -> Row:
    """Return a row that compares a size or a time with a peer's; less is better."""
    target = "" if most is None else f"at most {most:g} x"
    if not other:
        return Row(name, spread(own, unit, 0), f"{peer}: not run", "", target)
    ratio = statistics.median(own) / statistics.median(other)
    met = None if most is None else ratio <= most
    return Row(name, spread(own, unit, 0), f"{peer} {spread(other, unit, 0)}", f"{ratio:.2f} x", target, met)


def _latency(results: Results) -> Iterator[Row]:
    for quantile, most in (("p50", 150), ("p99", 250)):
        name = f"latency, {results['per_second']} records/s in each topic, {quantile}"
        own = _quantile(results["Turnout"], quantile)
        yield _under(name, own, most, " ms", 0)
        for version, (way, said) in product(DEEPHAVENS, (("", " as shipped"), (FAST_CYCLE, FAST_CYCLE))):
            other = _quantile(results.get(f"{version}{way}", []), quantile)
            yield _at_most(name, own, f"{version}{said}", other, None, " ms")
    for peer, reason in results["not_run"].items():
        yield Row("latency", "", f"{peer}: not run: {reason.partition(': ')[0]}")
    for load, systems in results["processors"].items():
        cores = [sum(usage[kind] for kind in KINDS) / usage["wall"] for usage in systems["Turnout"]]
        yield _under(f"{load}, cores", cores, 0.5, "", 2)

    if first := results.get("first"):
        for quantile in ("p50", "p99"):
            name = f"latency in the first {results['first_seconds']:g} s after the first row, {quantile}"
            base = ("in the steady state", _quantile(results["Turnout"], quantile))
            yield _to_itself(name, _quantile(first, quantile), base, 2.0, " ms")


def _quantile(runs: list[Results], quantile: str) -> list[float]:
    return [run[f"{quantile}_ms"] for run in runs]


def _sustained(results: Results) -> Iterator[Row]:
    name = f"sustained, {results['asked_per_second']:,} records/s"
    taken = f"{results['p99_ms'] / 1000:.2f} s (p50 {results['p50_ms'] / 1000:.2f} s)"
    yield Row(f"{name}, p99", taken, "", "", "under 1.2 s", results["p99_ms"] < 1200)
    drained = results["drain_seconds"]
    after = "still a lag a minute after the end" if drained is None else f"no lag {drained:.1f} s after the end"
    yield Row(
        f"{name}, lag at the end",
        f"{results['lag_at_end']:,} records; {after}",
        "",
        "",
        "bounded",
        bounded(results["lag"]),
    )


def _swap(results: Results) -> Iterator[Row]:
    for name, text, most in (
        ("latest", "swap, `start: latest`", 0.2),
        ("earliest", f"swap, {results['rows']:,} rows to catch up on", 1.2),
    ):
        yield _under(text, results[name], most, digits=2)
        reads = results[f"{name} reads"]
        counted = {kind: count for kind, count in reads.items() if kind != "answers"}
        shown = ", ".join(f"{count} {kind}" for kind, count in counted.items())
        asked = reads["answers"] + reads["errors"]
        none = " and ".join(f"0 {kind}" for kind in counted)
        yield Row(
            f"{text}, reads meanwhile", f"{shown} of {asked:,}", "", "", none, asked > 0 and not any(counted.values())
        )


def _kept(results: Results) -> Iterator[Row]:
    rows, small, parts = f"{results['rows']:,}", f"{results['small_rows']:,}", results["parts"]
    for part, name, most in (
        ("join", f"another join, {rows} + {rows} kept rows", 2.5),
        ("small join", f"another join, {small} + {small} kept rows", 0.8),
        ("view", f"a new view by an applied file, {rows} + {rows} kept rows", 2.5),
    ):
        yield _under(name, parts[part]["seconds"], most, digits=2)
        read = sum(origin["read"] for sources in parts[part]["sources"] for origin in sources.values())
        yield Row(f"{name}, records read", f"{read:,}", "", "", "0", read == 0)
    name = f"one of two topics moved, {rows} kept rows and {rows} records"
    base = ("reading both", parts["whole"]["seconds"])
    yield _to_itself(name, parts["one topic"]["seconds"], base, 0.6, " s")


def _beside(results: Results) -> Iterator[Row]:
    for quantile, limit in (("p50", None), ("p99", 2.0)):
        base = ("without a build", _quantile(results["alone"], quantile))
        name = f"latency beside a build, {quantile}"
        yield _to_itself(name, _quantile(results["beside"], quantile), base, limit, " ms")


def _growth(results: Results) -> Iterator[Row]:
    for key, text, most in (
        ("batch_ms", "small batch to a subscriber", 1.5),
        ("first_count_ms", "first count by a filter over HTTP", 2.0),
        ("first_filter_ms", "first window of a filter over HTTP", 2.0),
        ("first_sort_ms", "first window of an order over HTTP", 2.0),
        ("first_sorted_window_ms", "first sorted and filtered window over HTTP", 2.0),
        ("window_ms", "repeated window over HTTP", 1.5),
        ("sorted_window_ms", "repeated sorted and filtered window over HTTP", 1.5),
        ("moved_window_ms", "sorted and filtered window over HTTP after a small batch", 1.5),
    ):
        sizes = list(results[key])
        middles = [statistics.median(results[key][size]) for size in sizes]
        shown = ", ".join(f"{middle:,.0f}" if middle >= 10 else f"{middle:.1f}" for middle in middles)
        ratio = middles[-1] / middles[0]
        name = f"growth, {text}, {' / '.join(f'{int(size) / 1e6:g}M' for size in sizes)} rows"
        yield Row(
            name, f"{shown} ms", "itself with the fewest rows", f"{ratio:.2f} x", f"at most {most:g} x", ratio <= most
        )


def _summaries(results: Results) -> Iterator[Row]:
    without, some = results["summaries"]
    count, changes = int(some["summaries"]), results["per_second"]
    name = f"{count} summaries over {results['rows']:,} rows, {changes:,} changes/s"
    pushed = f"{some['p50_ms']:,.0f} ms, p99 {some['p99_ms']:,.0f} ms"
    yield Row(f"{name}, push", pushed, "", "", "p99 under 1,000 ms", some["p99_ms"] < 1_000)
    yield Row(
        f"{name}, all opened at once", f"{some['first_answers_ms'] / 1000:.1f} s until the last has its first answer"
    )
    between = f"{some['between_p50_ms']:,.0f} ms, p99 {some['between_p99_ms']:,.0f} ms"
    yield Row(f"{name}, time between two updates", between)
    beside = f"{some['window_p50_ms']:,.0f} ms, p99 {some['window_p99_ms']:,.0f} ms"
    alone = f"itself without them {without['window_p50_ms']:,.0f} ms, p99 {without['window_p99_ms']:,.0f} ms"
    ratio = f"{some['window_p50_ms'] / without['window_p50_ms']:.2f} x" if without["window_p50_ms"] else ""
    yield Row(f"{name}, a window beside them", beside, alone, ratio)
    cores = f"{some['server_cores']:.2f} cores"
    yield Row(f"{name}, the server", cores, f"itself without them {without['server_cores']:.2f} cores")


def _viewers(results: Results) -> Iterator[Row]:
    nobody = results["viewers"][0]
    for one in results["viewers"][1:]:
        count = int(one["viewers"])
        stalled = ", and one that reads nothing" if one["stalled"] else ""
        name = f"{count} viewer{'s' if count > 1 else ''}{stalled}, p99"
        shown = f"{one['p99_ms'] / 1000:.2f} s (p50 {one['p50_ms'] / 1000:.2f} s)"
        most = {50: 0.8 if one["stalled"] else 1.0, 200: 1.5}.get(count)
        if most is None:
            yield Row(name, shown)
        else:
            yield Row(name, shown, "", "", f"under {most:g} s", 0 < one["p99_ms"] < 1000 * most)
    last = results["viewers"][-1]
    each = max(0.0, last["added_mb"] - nobody["added_mb"]) / last["viewers"]
    yield Row(f"memory a viewer, of {last['viewers']:.0f}", f"{each:.2f} MB", "", "", "under 2 MB", each < 2)


def _start(results: Results) -> Iterator[Row]:
    yield _under("start, `turnout run` to the first row", results["seconds"], 8)
    if swaps := results.get("first_swap"):
        yield _under("first swap of a fresh process, small topics, `start: latest`", swaps, 1.5, digits=2)


def _idle(results: Results) -> Iterator[Row]:
    for (load, cores), most in zip(results["cores"].items(), (0.15, 0.03), strict=True):
        name = f"all processes but the broker, {load}, {results['seconds']:g} s"
        yield Row(name, f"{cores:.3f} cores", "", "", f"at most {most:g}", cores <= most)


def _starved(results: Results) -> Iterator[Row]:
    alone, starved = results["alone"], results["starved"]
    beside = f"beside {results['loops']} busy loops"
    for quantile in ("p50", "p99"):
        base = ("alone", _quantile(alone["latency"], quantile))
        yield _to_itself(f"latency {beside}, {quantile}", _quantile(starved["latency"], quantile), base, 3.0, " ms")
    for start, text in (("latest", "`start: latest`"), ("earliest", f"{results['rows']:,} rows")):
        yield _to_itself(f"swap {beside}, {text}", starved[start], ("alone", alone[start]), 3.0, " s")


def _cluster(results: Results) -> Iterator[Row]:
    (few, base), *others = results["seconds"].items()
    name = f"catch-up on a Spark cluster, {2 * results['records']:,} records, warm"
    for cores, taken in others:
        peer = f"itself, {few} worker core {spread(base)}"
        ratio = statistics.median(base) / statistics.median(taken)
        yield Row(f"{name}, {cores} worker cores", spread(taken), peer, f"{ratio:.2f} x")


def _capacity(results: Results) -> Iterator[Row]:
    small, large = results["builds"]
    million = (large["rows"] - small["rows"]) / 1e6
    for key, text in (("store_mb", "memory of store and server"), ("file_mb", "the store's file")):
        yield Row(f"{text}, for each million rows", f"{(large[key] - small[key]) / million:,.0f} MB")


def headlines(document: Results) -> str:
    """Return the table of the README: Turnout and Deephaven with default settings; the ratio is to the newest."""
    measures = document["measures"]
    peers = [name for name in DEEPHAVENS if name in measures["latency"]]
    lines: list[tuple[str, ...]] = [
        (text, *(show(statistics.median(taken)) for taken in (own, *others)), _times_better(own, others[0]))
        for text, show, own, *others in _compared(measures, ("Turnout", *peers))
    ]
    *first, (text, own, *shipped, ratio) = lines
    tuned = [_tuned(measures["latency"].get(f"{peer}{FAST_CYCLE}", [])) for peer in peers]
    both = [f"{one} as shipped{other}" for one, other in zip(shipped, tuned, strict=True)]
    lines = [*first, (text, own, *both, ratio)]
    swap = measures["swap"]
    text = f"swap with {swap['rows']:,} rows to read, under constant reads"
    reads = swap["earliest reads"]
    lost = f"{reads['errors']} errors, {reads['incomplete']} incomplete answers"
    reopened = ["the viewer reopens its table", "the same"][: len(peers)]
    lines.append((text, f"{statistics.median(swap['earliest']):.1f} s, {lost}", *reopened, ""))
    return _table(("measure", "Turnout", *peers, "ratio"), lines)


def _tuned(runs: list[Results]) -> str:
    return f", {statistics.median(_quantile(runs, 'p50')):.0f} ms with 100 ms cycles" if runs else ""


def _times_better(own: list[float], other: list[float]) -> str:
    return f"{statistics.median(other) / statistics.median(own):.2f}"


def _compared(measures: Results, names: tuple[str, ...]) -> Iterator[tuple[Any, ...]]:
    """Yield the common measures: name, format of a value, values of Turnout, values of each Deephaven."""
    catch_up, latency = measures["catch-up"], measures["latency"]
    systems = catch_up["variants"]["1 record a key"]
    for way in ("cold", "warm"):
        text = f"read {2 * catch_up['records']:,} records and join them, {way}"
        yield text, lambda seconds: f"{seconds:.1f} s", *(systems[f"{name} {way}"] for name in names)
    memory = catch_up["memory_mb"]
    yield "memory afterwards", lambda size: f"{size:,.0f} MB", *(memory[name] for name in names)
    text = f"record to viewer, median, {latency['per_second']} records/s in each topic"
    yield text, lambda taken: f"{taken:,.0f} ms", *(_quantile(latency[name], "p50") for name in names)


def markdown(document: Results) -> str:
    """Return the tables of the page on performance, with machine and versions."""
    measures = document["measures"]
    text = [_table(COLUMNS, [row.cells for row in rows(measures)]), describe(document)]
    if usages := usage_table.rows(measures):
        text += [f"**{usage_table.TITLE}.** {usage_table.NOTE}", _table(usage_table.COLUMNS, usages)]
    return "\n\n".join(text)


def _table(columns: tuple[str, ...], lines: list[tuple[str, ...]]) -> str:
    shown = [" | ".join(cell.replace("|", "\\|") for cell in line) for line in (columns, *lines)]
    return "\n".join([f"| {shown[0]} |", "|" + "---|" * len(columns), *(f"| {line} |" for line in shown[1:])])


def describe(document: Results) -> str:
    """Describe the machine and the versions in one paragraph."""
    machine = document["machine"]
    load = machine["load_before"]
    busy = f" In the minute before the run, the machine had other work (load {load:.1f})." if load > 1 else ""
    versions = ", ".join(f"{name} {version}" for name, version in document["versions"].items())
    took = document.get("took_seconds", {})
    known = set(took) >= set(document["measures"])
    lasted = f" These measures took {sum(took.values()) / 60:.0f} minutes." if known else ""
    return (
        f"{machine['cores']} cores ({machine['processor']}), {machine['memory_gib']:.0f} GiB, {machine['system']}; "
        f"everything, also the broker and the viewers, runs on this machine. {versions}. Medians, with minimum and "
        f"maximum in brackets; written {document['written'][:10]} by `make bench`.{lasted}{busy}"
    )
