"""HTML by hand: escaping, tables, sections."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

COLOURS = """
:root { --ink: #1f2933; --muted: #616e7c; --line: #e4e7eb; --paper: white; --ground: #f5f7fa; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ee; --muted: #9aa5b1; --line: #343d48; --paper: #1c2229; --ground: #12161b; }
  :is(rect, path)[style^="fill:#"] { stroke: #9aa5b1; stroke-width: .7px; vector-effect: non-scaling-stroke; }
}
"""
"""Of a page, and of figures that stand alone. In the dark areas have an edge: some are as dark as the paper."""

STYLE = (
    f"{COLOURS}html {{ color-scheme: light dark; }}"
    """
* { box-sizing: border-box; }
body { margin: 0; background: var(--ground); color: var(--ink);
  font: 15px/1.55 system-ui, -apple-system, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 1120px; margin: 0 auto; padding: 40px 24px 64px; }
header p { color: var(--muted); margin: 4px 0 0; overflow-wrap: anywhere; }
h1, h2, h3 { overflow-wrap: anywhere; }
h1 { font-size: 28px; line-height: 1.2; margin: 0; letter-spacing: -0.01em; }
h2 { font-size: 17px; margin: 0 0 2px; }
h3 { font-size: 14px; margin: 18px 0 6px; }
section { background: var(--paper); border: 1px solid var(--line); border-radius: 10px; padding: 22px 26px;
  margin-top: 20px; }
section > p { color: var(--muted); margin: 0 0 14px; max-width: 80ch; }
svg { display: block; width: 100%; height: auto; font-family: inherit; }
svg text { fill: var(--ink); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 12px; margin-top: 24px; }
.card { background: var(--paper); border: 1px solid var(--line); border-radius: 10px; padding: 14px 18px; }
.card span { display: block; color: var(--muted); font-size: 13px; }
.card strong { display: block; font-size: 22px; font-weight: 600; margin: 2px 0; overflow-wrap: anywhere; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; }
.narrow { max-width: 320px; }
.scroll { overflow-x: auto; }
th { text-align: left; color: var(--muted); font-weight: 500; }
th, td { padding: 5px 18px 5px 0; border-bottom: 1px solid var(--line); vertical-align: top; }
tr:last-child td { border-bottom: 0; }
.number { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
.swatch { display: inline-block; width: 11px; height: 11px; border-radius: 2px; margin-right: 8px;
  box-shadow: 0 0 0 .5px #8888; }
.bar { height: 10px; border-radius: 2px; min-width: 1px; margin-top: 5px; box-shadow: 0 0 0 .5px #8888; }
.partial { color: #1f2933; background: #fff3c4; border: 1px solid #f0b429; border-radius: 8px; padding: 8px 14px;
  margin-top: 16px; }
a { color: inherit; }
details summary { cursor: pointer; color: var(--muted); margin: 6px 0; }
code { font: 12.5px ui-monospace, SFMono-Regular, Menlo, Consolas, monospace; overflow-wrap: anywhere; }
@media (max-width: 720px) {
  main { padding: 20px 8px 40px; }
  section { padding: 16px 14px; overflow-x: auto; }
  section > svg { min-width: 720px; }
  td:first-child { overflow-wrap: anywhere; min-width: 11ch; }
  .cards { grid-template-columns: repeat(auto-fit, minmax(130px, 1fr)); }
}
@media print { body { background: white; } section { break-inside: avoid; } }
"""
)


class Raw(str):
    """Text that is HTML already."""

    __slots__ = ()


def text(value: object) -> str:
    """A value as HTML: escaped unless it is `Raw`."""
    return value if isinstance(value, Raw) else escape(str(value))


def table(head: Sequence[str], rows: Sequence[Sequence[object]], numbers: Sequence[int] = ()) -> Raw:
    """A table; the columns in `numbers` are aligned right. An empty `head` makes no head row."""

    def cell(tag: str, i: int, value: object) -> str:
        kind = ' class="number"' if i in numbers else ""
        return f"<{tag}{kind}>{text(value)}</{tag}>"

    top = f"<thead><tr>{''.join(cell('th', i, name) for i, name in enumerate(head))}</tr></thead>" if head else ""
    body = "".join(f"<tr>{''.join(cell('td', i, value) for i, value in enumerate(row))}</tr>\n" for row in rows)
    return Raw(f'<div class="scroll"><table>{top}<tbody>{body}</tbody></table></div>')


def section(title: str, remark: str, *content: str) -> Raw:
    """A section with a title and a remark below it."""
    note = f"<p>{text(remark)}</p>" if remark else ""
    return Raw(f"<section><h2>{text(title)}</h2>{note}{''.join(content)}</section>\n")


def card(name: str, value: str, remark: str = "") -> Raw:
    """A main figure."""
    return Raw(
        f'<div class="card"><span>{text(name)}</span><strong>{text(value)}</strong><span>{text(remark)}</span></div>'
    )


def page(title: str, *content: str) -> str:
    """A whole page."""
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{text(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n{''.join(content)}</main>\n"
        "</body>\n</html>\n"
    )
