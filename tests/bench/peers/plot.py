"""A bar chart as SVG text. Pure. It has no colours of its own for text: it reads on light and on dark pages."""

from xml.sax.saxutils import escape

_BAR, _GAP, _TITLE, _LABEL, _WIDTH, _VALUE = 22, 8, 34, 300, 420, 90


def bars(title, rows):
    """`rows`: (label, value of at least 0, value as text). The first row, ours, is darker."""
    most = max((value for _, value, _ in rows), default=0) or 1
    height = _TITLE + len(rows) * (_BAR + _GAP)
    width = _LABEL + _WIDTH + _VALUE
    lines = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
             f'role="img" font-family="sans-serif" font-size="13" fill="#7a7a7a">',
             f"<title>{escape(title)}</title>", f'<text x="0" y="18" font-size="15">{escape(title)}</text>']
    for index, (label, value, text) in enumerate(rows):
        top = _TITLE + index * (_BAR + _GAP)
        length = max(1.0, _WIDTH * value / most)
        middle = top + _BAR * 0.7
        lines += [f'<text x="{_LABEL - 8}" y="{middle:.0f}" text-anchor="end">{escape(label)}</text>',
                  f'<rect x="{_LABEL}" y="{top}" width="{length:.1f}" height="{_BAR}" fill="{"#1f6f8b" if index == 0 else "#99b8c4"}"/>',
                  f'<text x="{_LABEL + length + 6:.1f}" y="{middle:.0f}">{escape(text)}</text>']
    return "\n".join([*lines, "</svg>", ""])
