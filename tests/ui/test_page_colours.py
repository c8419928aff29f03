# SPDX-License-Identifier: BSD-2-Clause
"""What the page's colours are by their numbers: all text can be read, in light and in dark."""

from __future__ import annotations

import importlib.resources
import re

import pytest

STATIC = importlib.resources.files("livedma.ui").joinpath("web", "static")
LOOK = STATIC.joinpath("look.css").read_text()
STYLE = STATIC.joinpath("style.css").read_text()
COLOURS = {
    name: (light, dark)
    for name, light, dark in re.findall(
        r"--([\w-]+): light-dark\((#[0-9a-f]{6}), (#[0-9a-f]{6})\);", LOOK
    )
}
TEXT, GRAPHICS = 4.5, 3.0  # WCAG 2.2, 1.4.3 and 1.4.11, AA


def luminance(colour: str) -> float:
    def linear(part: float) -> float:
        return part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4

    red, green, blue = (linear(int(colour[at : at + 2], 16) / 255) for at in (1, 3, 5))
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


def test_contrast_is_computed_as_wcag_does() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)


@pytest.mark.parametrize("theme", [0, 1], ids=["light", "dark"])
@pytest.mark.parametrize(
    ("front", "behind", "least"),
    [
        *(
            (front, behind, TEXT)
            for front in ("ink", "soft")
            for behind in ("paper", "card", "sunk")
        ),
        *(
            (front, behind, TEXT)
            for front in ("fine", "help", "else", "bad", "slow", "accent")
            for behind in ("paper", "card")
        ),
        *((tone, f"{tone}-wash", TEXT) for tone in ("fine", "help", "else", "bad", "slow")),
        ("ink", "bad-wash", TEXT),
        ("accent", "sunk", TEXT),
        ("on-accent", "accent", TEXT),
        ("paper", "ink", TEXT),
        *((front, "card", GRAPHICS) for front in ("s0", "s1", "s2")),
    ],
)
def test_it_can_be_read(front: str, behind: str, least: float, theme: int) -> None:
    assert contrast(COLOURS[front][theme], COLOURS[behind][theme]) >= least


def test_every_colour_is_one_of_the_look() -> None:
    """Else it would be the same in light and dark. Shadows are dark in both."""
    own = set(re.findall(r"#[0-9a-fA-F]{3,8}\b", re.sub(r"#[a-z][\w-]* ", "", STYLE)))
    assert own == set()
    used = set(re.findall(r"var\(--([\w-]+)", LOOK + STYLE))
    said = set(re.findall(r"--([\w-]+):", LOOK + STYLE))
    assert used <= said
