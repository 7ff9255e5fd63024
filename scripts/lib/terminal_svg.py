"""Draws the contents of a terminal as an SVG: the same bytes give the same picture. Always dark, so readable on any page."""

import re
from xml.sax.saxutils import escape, quoteattr

CHARACTER, LINE, MARGIN, BAR = 8.43, 18, 12, 26
GROUND, FRAME, TEXT, FAINT = "#16181d", "#2a2e37", "#e4e6eb", "#8b93a1"
FONT = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"
# ECMA-48's eight colors, plain and bright.
_COLOURS = ["#5c6370", "#ff7b72", "#56d364", "#e3b341", "#79c0ff", "#d2a8ff", "#56d4dd", TEXT]
_SEQUENCE = re.compile(r"\x1b\[([0-9;?]*)([A-Za-z])")
PLAIN = (None, None, False, False)  # colour, ground, bold, inverse


class UnknownSequence(ValueError):
    """A control sequence that isn't supported here."""


def rows_of(text):
    """[[(style, characters)]] of one screen. Errors: UnknownSequence."""
    rows, style = [[]], PLAIN
    at = 0
    while at < len(text):
        match = _SEQUENCE.match(text, at)
        if match:
            style = _apply(style, *match.groups())
            at = match.end()
        elif text[at] == "\n":
            rows.append([])
            at += 1
        elif text[at] == "\x1b":
            raise UnknownSequence(repr(text[at:at + 12]))
        else:
            end = min(i for i in (text.find("\x1b", at), text.find("\n", at), len(text)) if i >= 0)
            rows[-1].append((style, text[at:end].rstrip("\r")))
            at = end
    return rows


def _apply(style, numbers, kind):
    if kind in "HKJ" or numbers.startswith("?"):
        return style  # from the upper left corner, on an empty screen
    if kind != "m":
        raise UnknownSequence(f"ESC [ {numbers} {kind}")
    colour, ground, bold, inverse = style
    for number in [int(word or 0) for word in numbers.split(";")]:
        if number == 0:
            colour, ground, bold, inverse = PLAIN
        elif number in (1, 22):
            bold = number == 1
        elif number in (7, 27):
            inverse = number == 7
        elif number in (2, 90):
            colour = FAINT
        elif 30 <= number <= 37 or 91 <= number <= 97:
            colour = _COLOURS[number % 10]
        elif 40 <= number <= 47:
            ground = _COLOURS[number % 10]
        elif number == 39:
            colour = None
        elif number == 49:
            ground = None
        else:
            raise UnknownSequence(f"colour {number}")
    return colour, ground, bold, inverse


def draw(text, title, columns, label):
    """`title`: in the bar above. `columns`: at least so many. `label`: the picture's text for screen readers."""
    rows = rows_of(text)
    columns = max([columns] + [sum(len(part) for _, part in row) for row in rows])
    width, height = round(columns * CHARACTER + 2 * MARGIN), len(rows) * LINE + 2 * MARGIN + BAR
    shapes = [f'<rect width="{width}" height="{height}" rx="8" fill="{GROUND}" stroke="{FRAME}"/>',
              f'<rect y="{BAR}" width="{width}" height="1" fill="{FRAME}"/>',
              *(f'<circle cx="{MARGIN + 6 + 16 * i}" cy="13" r="5" fill="{FRAME}"/>' for i in range(3)),
              f'<text x="{width / 2:g}" y="17" text-anchor="middle" fill="{FAINT}">{escape(title)}</text>']
    for number, row in enumerate(rows):
        shapes += _draw_row(row, BAR + MARGIN + number * LINE)
    head = (f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" viewBox="0 0 {width} {height}" '
            f'role="img" aria-label={quoteattr(label)} font-family="{FONT}" font-size="14" xml:space="preserve">')
    return "\n".join([head, *shapes, "</svg>", ""])


def _draw_row(row, top):
    shapes, column = [], 0
    for (colour, ground, bold, inverse), part in row:
        x, length = MARGIN + column * CHARACTER, len(part) * CHARACTER
        ink, paper = (GROUND, colour or TEXT) if inverse else (colour or TEXT, ground)
        if paper:
            shapes.append(f'<rect x="{x:.2f}" y="{top}" width="{length:.2f}" height="{LINE}" fill="{paper}"/>')
        # Each word is placed by itself, so that it stays in its column with every font.
        for word in re.finditer(r"\S+(?: \S+)*", part):
            left, wide = x + word.start() * CHARACTER, len(word[0]) * CHARACTER
            weight = ' font-weight="bold"' if bold else ""
            shapes.append(f'<text x="{left:.2f}" y="{top + 13}" textLength="{wide:.2f}" lengthAdjust="spacingAndGlyphs" '
                          f'fill="{ink}"{weight}>{escape(word[0])}</text>')
        column += len(part)
    return shapes
