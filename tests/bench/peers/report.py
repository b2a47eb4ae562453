"""The table (Markdown), the document (JSON) and the plots (SVG) of a run of ./dev bench peers."""

import json
import os
import statistics

import plot

# Key of a measurement, what it is called, how it is shown, and its unit on a plot.
COLUMNS = [
    ("round_seconds_median", "round", lambda v: f"{v:.3g} s", "seconds a round"),
    ("server_cpu_seconds", "server, processor-seconds a round", lambda v: f"{v:.3g}", "server's processor-seconds a round"),
    ("all_cpu_seconds", "server and sites", lambda v: f"{v:.3g}", "processor-seconds a round, servers and sites"),
    ("server_memory_bytes", "server, peak memory", lambda v: f"{v / 1e6:,.0f} MB", "server's peak memory, MB"),
    ("bytes", "bytes a round", lambda v: f"{v / 1e6:,.1f} MB", "MB a round on the loopback"),
]
LINE = ("line_use", "of the line", lambda v: f"{v:.2f}", "bytes of a round at the line's rate, over the round")


def columns(document):
    return COLUMNS + ([LINE] if document["line_bits_per_s"] else [])


def summarise(document):
    """{(sites, params): {peer: {key: median of the measurements or None, "low", "high": of the round, "reason"}}}"""
    groups, line = {}, document["line_bits_per_s"]
    for result in document["measurements"]:
        if line and result.get("bytes"):
            result = result | {"line_use": result["bytes"] * 8 / line / statistics.mean(result["round_seconds"])}
        groups.setdefault((result["sites"], result["params"]), {}).setdefault(result["peer"], []).append(result)
    return {size: {peer: _row(results, columns(document)) for peer, results in rows.items()} for size, rows in groups.items()}


def _row(results, shown):
    good = [result for result in results if "reason" not in result]
    if not good:
        return {"reason": results[0]["reason"]}
    row = {}
    for key, *_ in shown:
        values = [result[key] for result in good if result.get(key) is not None]
        row[key] = statistics.median(values) if values else None
    every = [result["round_seconds_median"] for result in good]
    row |= {"low": min(every), "high": max(every), "checked": all(result["checked"] for result in good)}
    if len(good) < len(results):
        row["failed"] = f"{len(results) - len(good)} of {len(results)} failed"
    return row


def table(document):
    lines = []
    for (sites, params), rows in summarise(document).items():
        shown = columns(document)
        line = f", one line of {document['line_bits_per_s'] / 1e9:g} Gbit/s for all" if document["line_bits_per_s"] else ""
        lines += [f"{sites} sites, {params:,} parameters{line}, at least {document['rounds'] - 1} rounds behind a first that is dropped:",
                  "", "| | wire | " + " | ".join(title for _, title, _, _ in shown) + " |", "|---" * (len(shown) + 2) + "|"]
        lines += [_line(document["titles"][peer], row, shown) for peer, row in rows.items()]
        lines += [f"| {' | '.join(document['titles'][peer])} | not run: {reason}" + " |" * len(shown)
                  for peer, reason in document["not_run"].items()]
        lines.append("")
    return "\n".join(lines)


def _line(title, row, shown):
    head = f"| {' | '.join(title)} | "
    if "reason" in row:
        return head + f"failed: {row['reason']}" + " |" * len(shown)
    cells = [show(row[key]) if row[key] is not None else "-" for key, _, show, _ in shown]
    if row["high"] > row["low"]:
        cells[0] += f" ({row['low']:.3g} to {row['high']:.3g})"
    if "failed" in row:
        cells[0] += f"; {row['failed']}"
    return head + " | ".join(cells) + " |"


def head(document):
    machine = document["machine"]
    versions = "; ".join(f"{document['titles'][peer][0]}: {version}" for peer, version in document["versions"].items())
    return (f"`{document['command']}`\n\n{machine['date']}, {machine['cores']} cores of {machine['processor']}, "
            f"{machine['memory_gib']} GiB, {machine['system']}, Linux {machine['kernel']}; load {machine['load_before']:.1f} "
            f"before, {document['load_after']:.1f} after. {versions}.\n")


def write(document, folder):
    """Writes all files into `folder`, which is made; returns the text of peers.md."""
    os.makedirs(folder, exist_ok=True)
    text = head(document) + "\n" + table(document)
    with open(os.path.join(folder, "peers.md"), "w", encoding="utf-8") as file:
        file.write(text)
    with open(os.path.join(folder, "peers.json"), "w", encoding="utf-8") as file:
        json.dump(document, file, indent=1)
        file.write("\n")
    for (sites, params), rows in summarise(document).items():
        for key, _, show, unit in columns(document):
            bars = [(document["titles"][peer][0], row[key], show(row[key])) for peer, row in rows.items() if row.get(key) is not None]
            if bars:
                path = os.path.join(folder, f"{key}-{sites}-{params}.svg")
                with open(path, "w", encoding="utf-8") as file:
                    file.write(plot.bars(f"{unit}: {sites} sites, {params:,} parameters", bars))
    return text
