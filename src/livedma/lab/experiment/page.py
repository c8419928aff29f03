# SPDX-License-Identifier: BSD-2-Clause
"""Writes one HTML page about an experiment that needs no other file."""

from __future__ import annotations

import importlib.resources
import re
import string
from collections.abc import Iterable, Mapping
from html import escape

from livedma.lab.experiment.design import Experiment, Section
from livedma.lab.experiment.plots import INK, PALETTE
from livedma.lab.experiment.report import Report
from livedma.lab.experiment.runs import Runs
from livedma.lab.experiment.summary import columns_of, lines_of
from livedma.lab.experiment.wording import confidence

__all__ = ["render"]

_VARIABLES = {
    **dict(zip(INK, ("--ink", "--grid", "--paper"), strict=True)),
    **{color: f"--s{number}" for number, color in enumerate(PALETTE)},
}
_EACH_TURN = (
    "Every run has a process of its own. All points take turns, {turns} times, each time in "
    "another order (seed {seed}); ratios are taken between runs of the same turn. It took "
    "{seconds:.0f} s."
)


def render(report: Report, plots: Mapping[str, str]) -> str:
    """Returns the page; plots: SVG by name."""
    template = importlib.resources.files(__package__).joinpath("page.html").read_text()
    look = importlib.resources.files("livedma.ui").joinpath("web", "static", "look.css")
    experiment = report.experiment
    first, *others = report.answer
    problems = report.problems
    return string.Template(template).substitute(
        look=look.read_text().strip(),
        title=escape(f"livedma experiment {experiment.name}: {experiment.question}"),
        name=escape(experiment.name),
        question=escape(experiment.question),
        answer=f"{_warned(report.warnings)}<p>{escape(first)}</p>\n"
        f'<p class="basis">{escape(report.basis)}</p>\n{_list(others)}',
        left_out=f"<h2>What to know about the data</h2>\n{_list(problems)}" if problems else "",
        sections="\n".join(_section(one) for one in experiment.sections(report.runs)),
        limits=_titled("What it does not show", _paragraphs(experiment.limits)),
        setup=_titled("Set-up", _definitions(experiment.setup(report.form))),
        repetitions=report.repetitions,
        confidence=confidence(report.repetitions),
        plots="\n".join(_figure(name, svg) for name, svg in plots.items()),
        table=_table(experiment, report.runs),
        method=_paragraphs(
            [
                *experiment.method,
                _EACH_TURN.format(
                    turns=report.repetitions, seed=report.seed, seconds=report.seconds
                ),
            ]
        ),
        host=_definitions(report.host),
        again=f"<p><code>{escape(report.command)}</code></p>\n<p>The data of every run are in "
        f"<code>{escape(experiment.name)}.parquet</code>, beside this page"
        f"{_also(experiment.files(report.runs))}.</p>",
    )


def _also(names: Iterable[str]) -> str:
    return "".join(f"; rows for programs in <code>{escape(name)}</code>" for name in names)


def _warned(warnings: Iterable[str]) -> str:
    return "".join(f'<p class="warning">{escape(one)}</p>\n' for one in warnings)


def _titled(title: str, html: str) -> str:
    """Returns nothing if there is no text."""
    return f"<h2>{escape(title)}</h2>\n{html}" if html else ""


def _words(tag: str, texts: Iterable[str]) -> str:
    cells = (f'<{tag} class="word">{escape(text)}</{tag}>' for text in texts)
    return f"<tr>{''.join(cells)}</tr>"


def _section(section: Section) -> str:
    parts = [_paragraphs(section.paragraphs)]
    if section.body:
        head = _words("th", section.head)
        body = "\n".join(_words("td", line) for line in section.body)
        parts.append(
            f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(section.title)}">'
            f"<table>\n<thead>{head}</thead>\n<tbody>\n{body}\n</tbody>\n</table></div>"
        )
    if section.log:
        text = escape("\n".join(section.log))
        parts.append(f'<pre class="scroll" tabindex="0">{text}</pre>')
    return _titled(section.title, "\n".join(part for part in parts if part))


def _paragraphs(texts: Iterable[str]) -> str:
    return "\n".join(f"<p>{escape(text)}</p>" for text in texts)


def _list(texts: Iterable[str]) -> str:
    items = "\n".join(f"<li>{escape(text)}</li>" for text in texts)
    return f"<ul>\n{items}\n</ul>" if items else ""


def _definitions(pairs: Mapping[str, str]) -> str:
    rows = (f"<dt>{escape(name)}</dt><dd>{escape(text)}</dd>" for name, text in pairs.items())
    return "<dl>\n{}\n</dl>".format("\n".join(rows)) if pairs else ""


def _table(experiment: Experiment, runs: Runs) -> str:
    columns = columns_of(experiment, runs)

    def row(tag: str, cells: Iterable[str]) -> str:
        marked = (
            f"<{tag}>{cell}</{tag}>" if column.unit else f'<{tag} class="word">{cell}</{tag}>'
            for cell, column in zip(cells, columns, strict=True)
        )
        return f"<tr>{''.join(marked)}</tr>"

    head = row("th", (escape(column.label) for column in columns))
    body = "\n".join(
        row(
            "td",
            (
                escape(cell.text) + (f"<small>{escape(cell.spread)}</small>" if cell.spread else "")
                for cell in line
            ),
        )
        for line in lines_of(experiment, runs, columns)
    )
    return f"<table>\n<thead>{head}</thead>\n<tbody>\n{body}\n</tbody>\n</table>"


def _figure(name: str, svg: str) -> str:
    """Returns the SVG inline: as wide as there is room, with the page's colours and its own ids."""
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    head, bracket, body = svg.partition(">")
    head = re.sub(r' (width|height|xmlns:xlink)="[^"]*"', "", head)
    body = body.replace("xlink:href=", "href=")
    body = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', body)
    body = re.sub(r'(href="#|url\(#)', rf"\1{name}-", body)
    for color, variable in _VARIABLES.items():
        body = body.replace(color, f"var({variable})")
    return f'<figure>{head} role="img"{bracket}{body.strip()}</figure>'
