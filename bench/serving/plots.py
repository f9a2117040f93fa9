"""Distributions as SVG: for each load, the share of requests that had their first token within a time, and the share
of gaps between tokens longer than a time. Both times on a logarithmic axis.
"""

import html
import math

COLOURS = ("#0b6e4f", "#c1440e", "#2f5d9b", "#8a5a00", "#7b3294", "#4d4d4d", "#b0006d", "#00788a")
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 430, 250, 58, 34, 14, 46
LEGEND_LINE = 18


def ticks(low, high):
    """Powers of ten, and where there are few of them also their doubles and fives."""
    steps = (1,) if math.log10(high / low) > 3 else (1, 2, 5)
    found = [step * 10.0 ** power for power in range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
             for step in steps]
    return [tick for tick in found if low <= tick <= high]


def milliseconds(value):
    return f"{value / 1000:g} s" if value >= 1000 else f"{value:g} ms"


class Panel:
    def __init__(self, x, y, title, caption, values, tail):
        """`values`: a list of milliseconds by series; `tail` shows the share above each on a logarithmic axis."""
        self.x, self.y, self.title, self.caption, self.tail = x, y, title, caption, tail
        self.values = [sorted(max(value, 0.1) for value in one) for one in values]
        everything = [value for one in self.values for value in one] or [1.0, 10.0]
        self.low, self.high = min(everything) / 1.15, max(everything) * 1.15
        self.least = min((1 / len(one) for one in self.values if one), default=0.1) if tail else 0

    def place_x(self, value):
        inside = WIDTH - LEFT - RIGHT
        return self.x + LEFT + inside * math.log(value / self.low) / math.log(self.high / self.low)

    def place_y(self, share):
        inside = HEIGHT - TOP - BOTTOM
        if self.tail:
            share = 1 - math.log(max(share, self.least)) / math.log(self.least) if self.least < 1 else 1
        return self.y + HEIGHT - BOTTOM - inside * share

    def share_ticks(self):
        if not self.tail:
            return (0, 0.25, 0.5, 0.75, 1)
        return [10.0 ** -power for power in range(0, math.floor(-math.log10(self.least)) + 1)]

    def frame(self):
        left, right = self.x + LEFT, self.x + WIDTH - RIGHT
        top, bottom = self.y + TOP, self.y + HEIGHT - BOTTOM
        yield text(left, self.y + 18, self.title, "title")
        yield text((left + right) / 2, self.y + HEIGHT - 8, self.caption, "label", "middle")
        for value in ticks(self.low, self.high):
            at = self.place_x(value)
            yield f'<line class="grid" x1="{at:.1f}" y1="{top}" x2="{at:.1f}" y2="{bottom}"/>'
            yield text(at, bottom + 15, milliseconds(value), "tick", "middle")
        for share in self.share_ticks():
            at = self.place_y(share)
            yield f'<line class="grid" x1="{left}" y1="{at:.1f}" x2="{right}" y2="{at:.1f}"/>'
            yield text(left - 6, at + 4, f"{share * 100:g} %", "tick", "end")

    def curves(self, colours):
        for values, colour in zip(self.values, colours):
            if not values:
                continue
            count, points = len(values), []
            before = 1.0 if self.tail else 0.0
            for i, value in enumerate(values):
                after = (count - i - 1) / count if self.tail else (i + 1) / count
                at = self.place_x(value)
                points += [f"{at:.1f},{self.place_y(before):.1f}", f"{at:.1f},{self.place_y(after):.1f}"]
                before = after
            yield f'<polyline fill="none" stroke="{colour}" stroke-width="1.8" points="{" ".join(thin(points))}"/>'


def thin(points):
    """Without neighbours that fall on the same place."""
    return [point for i, point in enumerate(points) if i == 0 or point != points[i - 1]]


def text(x, y, content, kind, anchor="start"):
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{html.escape(content)}</text>'


STYLE = """<style>
  text { font-family: 'DejaVu Sans', Verdana, sans-serif; fill: #222 }
  .title { font-size: 13px; font-weight: bold } .label { font-size: 11px } .tick { font-size: 10px; fill: #555 }
  .grid { stroke: #ddd; stroke-width: 1 }
</style>"""


def draw(title, series):
    """An SVG of `series`: name to (TTFTs, gaps), in milliseconds."""
    panels = []
    ttfts, gaps = [one[0] for one in series.values()], [one[1] for one in series.values()]
    if any(ttfts):
        panels.append((ttfts, "Time to first token", "requests answered within", False))
    if any(gaps):
        panels.append((gaps, "Gaps between tokens", "gaps longer than", True))
    width = WIDTH * max(1, len(panels))
    height = HEIGHT + 40 + LEGEND_LINE * len(series)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
             f'height="{height}" role="img" aria-label="{html.escape(title)}">', STYLE,
             f'<rect width="{width}" height="{height}" fill="white"/>', text(16, 22, title, "title")]
    for i, (values, name, caption, tail) in enumerate(panels):
        panel = Panel(i * WIDTH, 30, name, caption, values, tail)
        parts += [*panel.frame(), *panel.curves(COLOURS)]
    for i, (name, colour) in enumerate(zip(series, COLOURS)):
        at = HEIGHT + 42 + i * LEGEND_LINE
        parts.append(f'<line x1="16" y1="{at - 4}" x2="40" y2="{at - 4}" stroke="{colour}" stroke-width="3"/>')
        parts.append(text(48, at, name, "label"))
    return "\n".join([*parts, "</svg>", ""])
