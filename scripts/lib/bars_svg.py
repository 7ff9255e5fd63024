"""Draws measurements as bars: the medians, and a dot for each value. Follows the page's light or dark theme."""

import math
import statistics
from xml.sax.saxutils import escape, quoteattr

WIDTH, LEFT, RIGHT, TOP, ROW = 840, 190, 90, 58, 44
FONT = "system-ui,-apple-system,'Segoe UI','DejaVu Sans',sans-serif"
_STYLE = """<style>
.ground{fill:#ffffff;stroke:#d9d9e0}.text{fill:#1c2024}.faint{fill:#60646c}.line{stroke:#d9d9e0}
.ours{fill:#2b9a66}.theirs{fill:#8b8d98}.dot{fill:#1c2024;fill-opacity:.55}
@media (prefers-color-scheme:dark){
.ground{fill:#18191b;stroke:#363a3f}.text{fill:#edeef0}.faint{fill:#b0b4ba}.line{stroke:#363a3f}
.ours{fill:#3dd68c}.theirs{fill:#777b84}.dot{fill:#edeef0}}
</style>"""


def tick_of(most):
    """A round distance of the scale's lines: 1, 2 or 5 times a power of ten, for at most seven lines."""
    power = 10 ** math.floor(math.log10(most))
    return next(step for step in (power / 10, power / 5, power / 2, power, 2 * power) if most / step <= 7)


def draw(title, note, rows, label):
    """`rows`: [(name, whether it is ddprun, [seconds])], without empty lists."""
    most = max(max(values) for _, _, values in rows)
    height = TOP + len(rows) * ROW + 50
    scale = (WIDTH - LEFT - RIGHT) / most
    bottom = TOP + len(rows) * ROW
    shapes = [f'<rect class="ground" x=".5" y=".5" width="{WIDTH - 1}" height="{height - 1}" rx="8"/>',
              f'<text class="text" x="16" y="28" font-size="16" font-weight="600">{escape(title)}</text>',
              f'<text class="faint" x="16" y="{height - 12}" font-size="12">{escape(note)}</text>']
    tick = tick_of(most)
    for number in range(int(most / tick) + 1):
        x = LEFT + number * tick * scale
        shapes += [f'<line class="line" x1="{x:.1f}" y1="{TOP - 12}" x2="{x:.1f}" y2="{bottom}"/>',
                   f'<text class="faint" x="{x:.1f}" y="{bottom + 14}" text-anchor="middle" font-size="12">'
                   f'{number * tick:g} s</text>']
    for number, (name, ours, values) in enumerate(rows):
        y, median = TOP + number * ROW, statistics.median(values)
        kind = "ours" if ours else "theirs"
        shapes += [f'<text class="text" x="{LEFT - 12}" y="{y + 20}" text-anchor="end" font-size="14">{escape(name)}</text>',
                   f'<rect class="{kind}" x="{LEFT}" y="{y}" width="{median * scale:.1f}" height="30" rx="3"/>',
                   *(f'<circle class="dot" cx="{LEFT + value * scale:.1f}" cy="{y + 15}" r="3"/>' for value in values),
                   f'<text class="text" x="{LEFT + max(values) * scale + 10:.1f}" y="{y + 20}" font-size="14" font-weight="600">'
                   f'{median:.2g} s</text>']
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height}" viewBox="0 0 {WIDTH} {height}" '
            f'role="img" aria-label={quoteattr(label)} font-family="{FONT}">')
    return "\n".join([head, _STYLE, *shapes, "</svg>", ""])
