# SPDX-License-Identifier: BSD-2-Clause
"""Shows the main screen: connections, sessions and decisions, and reacts to its keys and mouse."""

from __future__ import annotations

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.widgets import Input

from livedma.errors import LivedmaError
from livedma.ui.top.columns import COLUMNS
from livedma.ui.top.connections import connections, height_wanted
from livedma.ui.top.decisions import decisions
from livedma.ui.top.glyphs import Glyphs
from livedma.ui.top.lever import Act, parsed
from livedma.ui.top.model import Model
from livedma.ui.top.panes import Pane
from livedma.ui.top.picture import Role, cut
from livedma.ui.top.screens import Drawn, SessionScreen
from livedma.ui.top.sessions import HEAD, Sessions
from livedma.ui.top.usage import footer

__all__ = ["MainScreen"]

_KEYS = "Enter why, / filter, < > sort, r reverse, g graph, space pause, ? help, q quit"
_FILTER_HINT = (
    " filter: part of an id or address, c1, busy, idle, waits. Enter keeps it, Esc shows all"
)
_ORDER_HINT = " how much, and for which connection: 1 4MiB. Enter does it, Esc leaves"
_FROM_OUTSIDE = "these servers are watched from outside: there are no levers here"
_FROM_AFAR = "a server afar has its levers on its page: use that, or top on its host"
_SAID_S = 10.0
_FAR = 1 << 20
_FILTER_MOST = 80


class MainScreen(Drawn):
    """Shows the main screen: its parts are as high as they need, and sessions have the rest."""

    AUTO_FOCUS = "#sessions"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move(-1)", show=False),
        Binding("down,j", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", f"move({-_FAR})", show=False),
        Binding("end", f"move({_FAR})", show=False),
        Binding("enter", "open", show=False),
        Binding("slash", "filter", show=False),
        Binding("escape", "all", show=False),
        Binding("less_than_sign,left", "sort_beside(-1)", show=False),
        Binding("greater_than_sign,right", "sort_beside(1)", show=False),
        Binding("r", "reverse", show=False),
        Binding("g", "graph", show=False),
        Binding("plus", "order('extend')", show=False),
        Binding("minus", "order('shrink')", show=False),
        *(Binding(one.key, f"sort('{one.name}')", show=False) for one in COLUMNS),
    ]

    def __init__(self, model: Model, glyphs: Glyphs, act: Act | None = None) -> None:
        super().__init__(model, glyphs)
        self.sessions = Sessions(model)
        self._act = act
        self._lever = ""  # that is being asked for
        self._said: tuple[str, Role] = ("", "")  # what became of the last one, and how it is shown
        self._back = 0  # lines of decisions that are newer than those shown
        self._first = 0  # line of connections

    def compose(self) -> ComposeResult:
        yield Pane("heading")
        yield Pane("connections", can_focus=True)
        yield Pane("sessions", can_focus=True)
        yield Pane("decisions", can_focus=True)
        yield Pane("footer")
        yield Input(id="filter", placeholder=_FILTER_HINT, max_length=_FILTER_MOST, compact=True)
        yield Input(
            id="order",
            placeholder=_ORDER_HINT,
            max_length=_FILTER_MOST,
            select_on_focus=False,  # it begins with a connection's number
            compact=True,
        )

    # Drawing.

    def _heights(self) -> tuple[int, int, int]:
        """Returns the heights of connections, sessions and decisions."""
        room = self.size.height - 3
        upper = height_wanted(self.model.frame, self.size.width, max(2, room // 3))
        lower = max(2, min(16, (room + 3) // 4))
        return upper, max(1, room - upper - lower), lower

    def draw(self) -> None:
        width = self.size.width
        if not self.has_panes or not width:
            return
        upper, middle, lower = self._heights()
        for name, height in (("connections", upper), ("decisions", lower)):
            pane = self.pane(name)
            if pane.styles.height is None or pane.styles.height.value != height:
                pane.styles.height = height
        focused = self.focused.id if self.focused is not None else ""
        self.draw_heading()
        self.pane("connections").show(
            connections(self.model.frame, width, upper, self.glyphs, self._first)
        )
        self.pane("sessions").show(
            self.sessions.lines(
                width, middle, self.glyphs, is_focused=focused in ("sessions", "filter")
            )
        )
        self.pane("decisions").show(
            decisions(
                self.model.events,
                width,
                lower,
                self.glyphs,
                back=self._back,
                is_focused=focused == "decisions",
                is_steered=self.model.frame is None or self.model.frame.is_steered,
            )
        )
        said, style = self._said
        line = cut(((f" {said}", style),), width, self.glyphs) if said else None
        self.pane("footer").show([line or footer(_KEYS, width, self.glyphs)])

    # Keys and the mouse.

    def on_descendant_focus(self) -> None:
        self.draw()

    def action_move(self, rows: int) -> None:
        focused = self.focused.id if self.focused is not None else ""
        if focused == "decisions":
            self._back = min(max(0, self._back - rows), 4 * len(self.model.events))
        elif focused == "connections":
            count = len(self.model.snapshot.connections) if self.model.snapshot else 0
            self._first = min(max(0, self._first + rows), 2 * count)
        else:
            self.sessions.move(rows)
        self.draw()

    def action_page(self, pages: int) -> None:
        upper, middle, lower = self._heights()
        focused = self.focused.id if self.focused is not None else ""
        height = {"decisions": lower - 1, "connections": upper - 1}.get(
            focused or "", middle - HEAD
        )
        self.action_move(pages * max(1, height))

    def action_open(self) -> None:
        session = self.sessions.current()
        if session is not None:
            self.app.push_screen(SessionScreen(self.model, self.glyphs, session))

    def action_sort(self, name: str) -> None:
        self.sessions.order.sort_by(next(one for one in COLUMNS if one.name == name))
        self.draw()

    def action_sort_beside(self, step: int) -> None:
        self.sessions.order.sort_beside(step)
        self.draw()

    def action_reverse(self) -> None:
        self.sessions.order.sort_by(self.sessions.order.by)
        self.draw()

    def action_graph(self) -> None:
        self.sessions.next_graph()
        self.draw()

    def action_filter(self) -> None:
        self.pane("footer").display = False
        asked = self.query_one("#filter", Input)
        asked.display = True
        asked.focus()

    def action_all(self) -> None:
        """Handles Esc, wherever the focus is."""
        asked = self.query_one("#filter", Input)
        asked.value = ""
        self.sessions.set_filter("")
        self._leave_filter()

    def action_order(self, lever: str) -> None:
        """Asks how much memory, for the connection of the session that is chosen."""
        if self._act is None:
            frame = self.model.frame
            is_steered = frame is None or frame.is_steered
            self._say(_FROM_AFAR if is_steered else _FROM_OUTSIDE, "warn")
            return
        self._lever = lever
        self.pane("footer").display = False
        asked = self.query_one("#order", Input)
        asked.border_title = lever
        asked.value = self._connection_first()
        asked.display = True
        asked.focus()

    def _connection_first(self) -> str:
        snapshot, chosen = self.model.snapshot, self.sessions.current()
        for one in () if snapshot is None else snapshot.sessions:
            if one.id == chosen and one.connections:
                return f"{min(one.connections)} "
        return ""

    async def _do(self, act: Act, lever: str, connection: int, length: int) -> None:
        try:
            done = await act(lever, connection, length)
        except (LivedmaError, ValueError) as refusal:
            self._say(f"{lever}: {refusal}", "bad")
        else:
            self._say(f"{lever}, connection {connection}: {done}", "strong")

    def _say(self, text: str, style: Role) -> None:
        """Shows a text in place of the keys, for a while."""
        said = self._said = (text, style)

        def forget() -> None:
            if self._said is said:
                self._said = ("", "")
                self.draw()

        self.set_timer(_SAID_S, forget)
        self.draw()

    def _leave_filter(self) -> None:
        self.query_one("#filter", Input).display = False
        self.query_one("#order", Input).display = False
        self.pane("footer").display = True
        self.pane("sessions").focus()
        self.draw()

    def on_input_changed(self, changed: Input.Changed) -> None:
        if changed.input.id == "filter":
            self.sessions.set_filter(changed.value)
            self.draw()

    def on_input_submitted(self, submitted: Input.Submitted) -> None:
        self._leave_filter()
        if submitted.input.id != "order" or self._act is None:
            return
        try:
            connection, length = parsed(submitted.value)
        except ValueError as error:
            self._say(str(error), "bad")
            return
        self.run_worker(self._do(self._act, self._lever, connection, length), exclusive=False)

    def on_click(self, event: events.Click) -> None:
        pane = self.pane("sessions")
        if not pane.region.contains(event.screen_x, event.screen_y):
            return
        y = event.screen_y - pane.region.y
        if y >= HEAD:
            self.sessions.choose_line(y)
            if event.chain > 1:
                self.action_open()
        elif y == HEAD - 1:
            column = self.sessions.column_at(event.screen_x, pane.size.width)
            if column is not None:
                self.sessions.order.sort_by(column)
        self.draw()

    def on_mouse_scroll_down(self) -> None:
        self.action_move(3)

    def on_mouse_scroll_up(self) -> None:
        self.action_move(-3)
