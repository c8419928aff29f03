# SPDX-License-Identifier: BSD-2-Clause
"""Delegates files: a client relies on a file not changing, and is called before it does (10.4).

The promise rests on a lease of the kernel on the delegation's descriptor. A client or a local
program that opens the file to write, or at all if the delegation is one to write, waits until this
server lets go of the lease; and the kernel gives no lease on a file that is already open that way.
Without a lease, or without a way to call the client, there is no delegation. Names and attributes
are watched beside it: a local program that changes them is not held up, but the delegation is
recalled.

All changes happen under the server's lock; files are opened before and closed after it.
"""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from livedma.nfs.numbers import CallbackOp, NfsError, Status, StatusFlag, WhyNot
from livedma.nfs.server.state.backchannel import Request
from livedma.nfs.server.state.held import Held
from livedma.nfs.server.state.leases import Leases
from livedma.nfs.server.state.opened import Delegation, OpenState
from livedma.nfs.server.state.quiet import Quiet
from livedma.nfs.server.state.shares import BOTH, READ, WRITE, Share
from livedma.nfs.server.state.watches import Watches
from livedma.nfs.server.store import Access
from livedma.nfs.stateid import Stateid
from livedma.rpc.xdr import Encoder

if TYPE_CHECKING:
    from livedma.nfs.server.context import Context
    from livedma.nfs.server.parts import Server
    from livedma.nfs.server.state.clients import Client
    from livedma.nfs.server.store import Node

__all__ = ["Delegations"]

_PART_OF_DESCRIPTORS = 4  # the part that delegations may hold at most


class Delegations:
    """Gives and recalls the delegations of a server, which are also in the table of its opens'
    stateids.

    counters: how many were given, recalled (local: for a local program), returned and revoked.
    """

    def __init__(self, server: Server) -> None:
        self._server = server
        self._leases: Leases | None = None
        self._watches: Watches | None = None
        if server.config.delegations:
            self._watches = Watches()
            self._leases = Leases(self._look)
            self._leases.listen(self._watches.fd)
        self._of_file: dict[tuple[int, int], dict[int, Delegation]] = {}
        self._of_client: dict[int, set[Delegation]] = {}  # including those that were revoked
        self._revoked: dict[int, int] = {}  # how many, by client number
        self._count = 0  # of those that were not revoked
        self._recalled: set[Delegation] = set()
        self._quiet = Quiet(server.clock)
        self.counters = dict.fromkeys(("given", "recalled", "local", "returned", "revoked"), 0)
        server.clients.on_gone.append(self._client_gone)

    def held_by(self, client: Client) -> int:
        """Returns how many a client has, or had and has not yet given up."""
        return len(self._of_client.get(client.number, ()))

    def flags(self, client: Client) -> int:
        """Returns what SEQUENCE says about them."""
        is_revoked = client.number in self._revoked
        return StatusFlag.RECALLABLE_STATE_REVOKED if is_revoked else 0

    def is_delegated(self, node: Node) -> bool:
        """Returns whether a client was told that the file stays as it is."""
        return node.key in self._of_file

    def is_sole(self, node: Node) -> bool:
        """Returns whether one client has a delegation to write; opening the file again would break
        its lease."""
        with self._server.lock:
            return any(one.is_write for one in self._of_file.get(node.key, {}).values())

    def offer(
        self, ctx: Context, node: Node, owner_may: bool, opened: OpenState | None = None
    ) -> Delegation | WhyNot:
        """Offers the caller one; it has just opened the file to read. opened: its open to read and
        write, for a delegation to write.
        """
        client = ctx.client
        if self._leases is None or self._watches is None or client is None:
            return WhyNot.RESOURCE
        with self._server.lock:
            why_not = self._why_not(client, node)
        if why_not is not None:
            return why_not
        try:
            held = self._descriptor(node, owner_may, opened)
        except NfsError:
            return WhyNot.RESOURCE
        is_write = opened is not None
        if not self._leases.take(held.fd, is_write):
            held.drop()
            return WhyNot.CONTENTION
        with self._server.lock:
            why_not = self._why_not(client, node)
            # If the lease was broken before this one is in the table, `_look` has missed it.
            if why_not is None and self._leases.is_broken(held.fd, is_write):
                why_not = WhyNot.CONTENTION
            watch = self._watches.add(held.fd) if why_not is None else None
            if watch is not None:
                return self._add(ctx, client, node, held, watch)
        self._leases.let_go(held.fd)
        held.drop()
        return why_not or WhyNot.RESOURCE

    def _descriptor(self, node: Node, owner_may: bool, opened: OpenState | None) -> Held:
        """Returns a new descriptor; to write that of the open, since there must be no other."""
        opens = self._server.opens
        if opened is None:
            return opens.descriptors.hold(
                self._server.store.open(node, True, False, owner_may), READ
            )
        with self._server.lock:
            held = opened.fds.find(BOTH) if opens.states.has(opened) else None
            if held is None:
                raise NfsError(Status.DELAY)
            return held.take()

    def _why_not(self, client: Client, node: Node) -> WhyNot | None:
        server = self._server
        if not server.callbacks.can_call(client):
            return WhyNot.RESOURCE
        if client.number in self._of_file.get(node.key, ()):
            return WhyNot.RESOURCE
        if node.handle in self._quiet:
            return WhyNot.CONTENTION
        if self._count >= server.opens.descriptors.most // _PART_OF_DESCRIPTORS:
            return WhyNot.RESOURCE
        if self.held_by(client) >= server.config.states_most:
            return WhyNot.RESOURCE
        return None

    def _add(self, ctx: Context, client: Client, node: Node, held: Held, watch: int) -> Delegation:
        states = self._server.opens.states
        ret = Delegation(states.new_name(), client, node, held, ctx.credential.uid, watch)
        ret.change()
        states.add(ret)
        self._count += 1
        self.counters["given"] += 1
        self._of_file.setdefault(node.key, {})[client.number] = ret
        self._of_client.setdefault(client.number, set()).add(ret)
        accelerator = self._server.accelerator
        if accelerator is not None and ret.uid is not None:
            with contextlib.suppress(OSError):  # Out of descriptors, it does without this one.
                accelerator.grant(
                    ret.other,
                    ret.seqid,
                    node.handle,
                    held.fd,
                    True,
                    ret.is_write,
                    client.number,
                    ret.uid,
                )
                ret.is_granted = True
        return ret

    def claimed(self, ctx: Context, stateid: Stateid, share: Share) -> None:
        """Checks the delegation by which the caller opens the file (CLAIM_DELEGATE_CUR)."""
        with self._server.lock:
            state = self._server.opens.find(ctx, stateid)
            if not isinstance(state, Delegation):
                raise NfsError(Status.BAD_STATEID)
            if share.access & WRITE and not state.is_write:
                raise NfsError(Status.OPENMODE)

    def make_way_to_read(self, ctx: Context, node: Node) -> None:
        """Recalls a delegation to write before the caller looks at a file's data or size: its
        holder may have changed them without telling the server. Raises DELAY until it is back.
        """
        if self.is_delegated(node) and self.is_sole(node):
            self.make_way(ctx, node)

    def shared(self, ctx: Context, node: Node) -> Held | None:
        """Returns the descriptor of the caller's own delegation to write: a second one would break
        the lease. Other users of that client need one, so for them the lease is let go.
        """
        if ctx.client is None or not self.is_delegated(node):
            return None
        with self._server.lock:
            one = self._of_file.get(node.key, {}).get(ctx.client.number)
            if one is None or not one.is_write:
                return None
            if one.uid is not None and one.uid == ctx.credential.uid:
                return one.held.take()
            self._let_go(one)
            self._recall(one)
            return None

    def make_way(self, ctx: Context, node: Node, *, writes: bool = False) -> None:
        """Recalls other clients' delegations before the caller changes a file; DELAY till then.

        writes: the file is opened to write, which the server's own lease would hold up. The
        caller's own delegation to read is then recalled as well, since nothing keeps local programs
        away any more; the caller need not wait for that. A caller that may not write is refused
        later, and disturbs no client.
        """
        if not self.is_delegated(node) or (writes and not self._may_write(node)):
            return
        with self._server.lock:
            holders = list(self._of_file.get(node.key, {}).values())
            others = [one for one in holders if one.client is not ctx.client]
            silent = [one for one in others if one.client.is_courtesy]
            for one in silent:
                self._server.clients.expire(one.client)
            for one in others:
                if one not in silent:
                    self._recall(one)
            if writes:
                for one in holders:
                    if one.client is ctx.client and not one.is_write:
                        self._let_go(one)
                        self._recall(one)
        if len(others) > len(silent):
            raise NfsError(Status.DELAY)
        if silent:
            self._server.recovery.settle()

    def _may_write(self, node: Node) -> bool:
        _, allowed = self._server.store.access(node, Access.MODIFY)
        return bool(allowed)

    def make_way_for_name(self, ctx: Context, directory: Node, name: bytes) -> None:
        """Does the same for the file of a name that is to be removed or replaced."""
        if not self._of_file:
            return
        try:
            node = self._server.store.lookup(directory, name)
        except NfsError:
            return  # The operation that wants to change it reports the error.
        self.make_way(ctx, node)

    def give_back(self, ctx: Context, stateid: Stateid) -> None:
        """Serves DELEGRETURN."""
        with self._server.lock:
            state = self._server.opens.find(ctx, stateid)
            if not isinstance(state, Delegation):
                raise NfsError(Status.BAD_STATEID)
            held = self._forget(state)
            self.counters["returned"] += 1
        held.drop()

    def free(self, delegation: Delegation) -> None:
        """Serves FREE_STATEID: the client knows of the revocation. The caller holds the lock."""
        if not delegation.is_revoked:
            raise NfsError(Status.LOCKS_HELD)
        self._drop_revoked(delegation)

    def _recall(self, delegation: Delegation) -> None:
        if delegation.recalled_s is None:
            delegation.recalled_s = self._server.clock()
            self._recalled.add(delegation)
            self.counters["recalled"] += 1
            self._quiet.add(delegation.handle)
            self._ask(delegation)

    def _ask(self, delegation: Delegation) -> None:
        out = Encoder()
        delegation.stateid.encode(out)
        out.boolean(False)  # The file is not about to be truncated.
        out.opaque(delegation.handle)

        def done(status: Status | None) -> None:
            # Any other status means: not now, or not known yet, since OPEN's reply is on its way.
            delegation.is_asked = status == Status.OK

        delegation.is_asked = True
        request = Request(CallbackOp.RECALL, bytes(out), done)
        if not self._server.callbacks.ask(delegation.client, request):
            delegation.is_asked = False

    def _look(self) -> None:
        """Looks for broken leases and changed attributes; runs in the thread of the leases."""
        with self._server.lock:
            assert self._watches is not None
            changed = self._watches.changed()
            for holders in list(self._of_file.values()):
                for one in list(holders.values()):
                    if changed is None or one.watch in changed:
                        self._recall(one)
                    if one.has_lease and not one.is_broken and self._is_broken(one):
                        one.is_broken = True
                        self.counters["local"] += 1
                        self._recall(one)

    @staticmethod
    def _is_broken(delegation: Delegation) -> bool:
        return Leases.is_broken(delegation.held.fd, delegation.is_write)

    def tick(self) -> None:
        """Repeats recalls that did not reach the client, and revokes what does not come back.

        Clients have one lease time to return it, as they may expect. But a local program waits only
        as long as the kernel lets it: after that it may change the file, and no client may rely on
        the old data any more.
        """
        needless: list[Held] = []
        with self._server.lock:
            now, lease_s = self._server.clock(), self._server.config.lease_s
            for one in list(self._recalled):
                assert one.recalled_s is not None
                patience_s = min(lease_s, Leases.break_s()) if one.is_broken else lease_s
                if now - one.recalled_s >= patience_s:
                    needless.append(self._revoke(one))
                elif not one.is_asked:
                    self._ask(one)
        for held in needless:
            held.drop()

    def _revoke(self, delegation: Delegation) -> Held:
        self._take_away(delegation)
        delegation.is_revoked = True
        self.counters["revoked"] += 1
        number = delegation.client.number
        self._revoked[number] = self._revoked.get(number, 0) + 1
        self._server.flags_changed(delegation.client)
        return delegation.held

    def _forget(self, delegation: Delegation) -> Held:
        self._take_away(delegation)
        self._server.opens.states.remove(delegation)
        self._drop_of_client(delegation)
        return delegation.held

    def _take_away(self, delegation: Delegation) -> None:
        """Ends the promise: no client may rely on it from here on."""
        holders = self._of_file[delegation.key]
        del holders[delegation.client.number]
        self._count -= 1
        if not holders:
            del self._of_file[delegation.key]
            assert self._watches is not None
            self._watches.remove(delegation.watch)
        self._recalled.discard(delegation)
        accelerator = self._server.accelerator
        if delegation.is_granted and accelerator is not None:
            delegation.is_granted = False
            accelerator.revoke(delegation.other)
        self._let_go(delegation)

    def _let_go(self, delegation: Delegation) -> None:
        if delegation.has_lease:
            delegation.has_lease = False
            Leases.let_go(delegation.held.fd)

    def _drop_revoked(self, delegation: Delegation) -> None:
        self._server.opens.states.remove(delegation)
        self._drop_of_client(delegation)
        number = delegation.client.number
        self._revoked[number] -= 1
        if not self._revoked[number]:
            del self._revoked[number]
            self._server.flags_changed(delegation.client)

    def _drop_of_client(self, delegation: Delegation) -> None:
        number = delegation.client.number
        self._of_client[number].remove(delegation)
        if not self._of_client[number]:
            del self._of_client[number]

    def _client_gone(self, client: Client) -> None:
        needless = self._all_gone(client.number)
        if needless:
            # The server's lock is held here, and closing may take long.
            threading.Thread(target=_drop, args=(needless,), name="nfs-close").start()

    def _all_gone(self, number: int) -> list[Held]:
        needless = []
        for one in list(self._of_client.get(number, ())):
            if one.is_revoked:
                self._drop_revoked(one)
            else:
                needless.append(self._forget(one))
        return needless

    def end(self) -> None:
        """Ends all delegations when the server ends; programs that wait for a lease go on."""
        needless: list[Held] = []
        with self._server.lock:
            for number in list(self._of_client):
                needless += self._all_gone(number)
        _drop(needless)
        if self._leases is not None and self._watches is not None:
            self._leases.close()
            self._watches.close()


def _drop(needless: list[Held]) -> None:
    for held in needless:
        held.drop()
