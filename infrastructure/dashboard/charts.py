"""Charts as SVG: shapes alone, whose colours the style sheet has, with a word for each step on hover."""

from __future__ import annotations

from itertools import groupby
from typing import TYPE_CHECKING

import attrs
from markupsafe import Markup

from outbox_kernel.infrastructure.dashboard import words

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from datetime import datetime

WIDTH, HEIGHT = 600.0, 140.0
SPARK_WIDTH, SPARK_HEIGHT = 120.0, 28.0
# The line must not be cut off where it is highest.
_HEADROOM = 1.06
_PLACES = 1


@attrs.frozen
class Scale:
    """How values of a kind are written, and where an axis of them ends."""

    written: Callable[[float | None], str]
    units: tuple[float, ...]
    """The sizes in which people count them: below the first it is parts of that."""
    least: float
    """Where the axis ends of what was nothing all the while."""

    def top_of(self, values: Iterable[float | None]) -> float:
        """Return a round number at or above all of them."""
        highest = max((value for value in values if value is not None), default=0.0)
        if highest <= 0:
            return self.least
        unit = max((each for each in self.units if each <= highest), default=self.units[0])
        following = min((each for each in self.units if each > unit), default=None)
        return _round_top(highest, unit, following)


def _round_top(highest: float, unit: float, following: float | None) -> float:
    """Return 1, 2 or 5 with zeros of a unit, or one of the following where that is sooner."""
    size = 10.0 ** int(f"{highest / unit:e}".partition("e")[2])
    top = next(step * size for step in (1, 2, 5, 10) if step * size >= highest / unit) * unit
    return top if following is None or following < highest else min(top, following)


# A line without an axis would show half a second as high as an hour: what is usual between two polls stays low.
LAG_SECONDS_LEAST = 10.0
DURATIONS = Scale(words.duration, (0.001, 1.0, 60.0, 3_600.0, 86_400.0), least=1.0)
RATES = Scale(words.rate, (1 / 3_600, 1 / 60, 1.0), least=1 / 3_600)


def spark(values: Sequence[float | None], label: str, least: float = 0.0) -> Markup:
    """Draw a small line without axes, as high as the highest value, or as the least that is worth a look."""
    highest = max((least, *(value for value in values if value is not None)))
    return Markup(
        '<svg class="spark" viewBox="0 0 {w:g} {h:g}" preserveAspectRatio="none" role="img" aria-label="{label}">'
        "{shapes}</svg>"
    ).format(
        w=SPARK_WIDTH,
        h=SPARK_HEIGHT,
        label=label,
        shapes=_shapes(values, SPARK_WIDTH, SPARK_HEIGHT, highest * _HEADROOM if highest > 0 else 1.0),
    )


def area(
    values: Sequence[float | None],
    moments: Sequence[datetime],
    label: str,
    scale: Scale,
) -> Markup:
    """Draw a line with the area below it, a grid, and what each step was."""
    step = WIDTH / max(1, len(values))
    grid = Markup("").join(
        Markup('<line class="grid" x1="0" x2="{:g}" y1="{:g}" y2="{:g}"/>').format(
            WIDTH, HEIGHT * part, HEIGHT * part
        )
        for part in (0.0, 0.5, 1.0)
    )
    hovers = Markup("").join(
        Markup(
            '<rect class="step" x="{x:.1f}" y="0" width="{w:.2f}" height="{h:g}"><title>{said}</title></rect>'
        ).format(
            x=number * step,
            w=step,
            h=HEIGHT,
            said=f"{moment:%Y-%m-%d %H:%M} UTC: {scale.written(value)}",
        )
        for number, (value, moment) in enumerate(zip(values, moments, strict=True))
    )
    return Markup(
        '<svg class="area" viewBox="0 0 {w:g} {h:g}" preserveAspectRatio="none" role="img" aria-label="{label}">'
        "{grid}{shapes}{hovers}</svg>"
    ).format(
        w=WIDTH,
        h=HEIGHT,
        label=label,
        grid=grid,
        shapes=_shapes(values, WIDTH, HEIGHT, scale.top_of(values)),
        hovers=hovers,
    )


def _shapes(values: Sequence[float | None], width: float, height: float, top: float) -> Markup:
    """Draw each stretch of known values as an area and a line; what is not known is a gap."""
    step = width / max(1, len(values) - 1)
    points = [
        (number * step, None if value is None else height - min(value, top) / top * height)
        for number, value in enumerate(values)
    ]
    drawn = Markup("")
    for is_known, stretch in groupby(points, key=lambda point: point[1] is not None):
        if is_known:
            drawn += _stretch([(x, y) for x, y in stretch if y is not None], height)
    return drawn


def _stretch(points: Sequence[tuple[float, float]], height: float) -> Markup:
    line = " ".join(f"{x:.{_PLACES}f},{y:.{_PLACES}f}" for x, y in points)
    below = f"{points[0][0]:.1f},{height:g} {line} {points[-1][0]:.1f},{height:g}"
    return Markup('<polygon class="fill" points="{}"/><polyline class="line" points="{}"/>').format(
        below, line
    )
