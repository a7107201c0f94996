"""What becomes of messages: lost, repeated, opened late or after their sender died, pickled only to be looked at,
passed on ten times, sent to oneself and to many. And what `tickets()` says of those in flight.
"""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import RunScript

pytestmark = pytest.mark.slow

HEAD = """
import hashlib, logging, os, pickle, signal, time
import allocator, shmtensor as st

def serve(inbox, outbox):
    kept = []
    while (task := inbox.recv()) != "end":
        kind, message = task
        if kind == "drop":
            kept.clear()
        elif kind == "make":
            outbox.send(pickle.dumps(st.full((1000,), message, pool=st.Pool.attach(message_pool[0]))))
            continue
        elif kind == "pool":
            message_pool[:] = [message]
        elif kind == "look":  # opens, and keeps nothing
            pickle.loads(message)
        elif kind == "keep":
            kept.append(pickle.loads(message))
        elif kind == "pass on":
            outbox.send(pickle.dumps(pickle.loads(message)))
            continue
        elif kind == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        outbox.send("done")

message_pool = []

class Peer:
    def __init__(self, pool):
        self.tasks, theirs = mp.Pipe()
        answers, self.answers = mp.Pipe()
        self.process = mp.Process(target=serve, args=(theirs, answers), daemon=True)
        self.process.start()
        answers.close()
        theirs.close()
        self("pool", pool.name)
    def __call__(self, kind, message=None):
        self.tasks.send((kind, message))
        return self.answers.recv()
    def end(self):
        self.tasks.send("end")
        self.process.join()
        assert self.process.exitcode == 0
    def die(self):
        self.tasks.send(("die", None))
        self.process.join()
        assert self.process.exitcode == -signal.SIGKILL

def stale(message):
    try:
        pickle.loads(message)
    except st.StaleHandle:
        return True
    return False

def expect(pool, tickets, used):
    pool.reap()
    pool.check()
    stats = pool.stats()
    assert (stats.tickets, stats.used_bytes > 0) == (tickets, used), stats
"""


def test_each_fate_of_a_message_has_its_rule(run_script: RunScript) -> None:
    code = """
    if __name__ == "__main__":
        pool = st.Pool.create(limit=64 << 20, ticket_grace=3600)
        one, two = Peer(pool), Peer(pool)

        def made():
            return pickle.dumps(st.full((1000,), 3, pool=pool))

        # Lost: it keeps the memory until somebody ends it.
        lost = made()
        expect(pool, tickets=1, used=True)
        assert pool.discard_tickets(older_than=3600) == 0 and pool.discard_tickets(older_than=0) == 1
        assert stale(lost)
        expect(pool, tickets=0, used=False)

        # Opened twice, by one and by two processes: while somebody has it.
        repeated = made()
        one("keep", repeated), one("keep", repeated), two("keep", repeated)
        assert pickle.loads(repeated).numpy().sum() == 3000
        expect(pool, tickets=0, used=True)
        one("drop"), two("drop")
        expect(pool, tickets=0, used=False)
        assert stale(repeated)

        # Opened late: after everything that was freed meanwhile has been used again and again.
        late = made()
        for i in range(200):
            st.full((1000,), 9, pool=pool).header().discard()
        assert (pickle.loads(late).numpy() == 3).all()
        expect(pool, tickets=0, used=False)

        # Opened after its sender died, and not: a sender that is dead keeps its messages for the grace.
        three = Peer(pool)
        sent, unopened = three("make", 4), three("make", 5)
        three.die()
        expect(pool, tickets=2, used=True)
        assert (pickle.loads(sent).numpy() == 4).all()
        expect(pool, tickets=1, used=True)
        ticket, = pool.tickets()
        assert (ticket.sender_pid, ticket.nbytes) == (0, 8000) and ticket.age_seconds < 60, ticket
        try:
            pool.allocate(64 << 20)  # memory is needed, but the grace is not over
        except st.OutOfSharedMemory as error:
            assert "1 messages in flight" in str(error), error
        assert (pickle.loads(unopened).numpy() == 5).all()
        expect(pool, tickets=0, used=False)

        # Pickled only to be looked at: each is a message, since nobody can know that it is none.
        tensor = st.full((1000,), 3, pool=pool)
        key = hashlib.sha256(pickle.dumps(tensor)).hexdigest()
        logging.getLogger("nobody").debug("%s %r", tensor, tensor)
        assert hash(tensor) == hash(tensor) and repr(tensor)
        expect(pool, tickets=1, used=True)
        del tensor
        expect(pool, tickets=1, used=True)
        assert pool.discard_tickets(older_than=0) == 1
        expect(pool, tickets=0, used=False)

        # Passed on ten times.
        travelling = made()
        for i in range(10):
            travelling = (one, two)[i % 2]("pass on", travelling)
            expect(pool, tickets=1, used=True)
        assert (pickle.loads(travelling).numpy() == 3).all()
        expect(pool, tickets=0, used=False)

        # To oneself: the same storage while it lives, and alive by the message alone.
        mine = st.full((1000,), 3, pool=pool)
        own = pickle.dumps(mine)
        assert pickle.loads(own).untyped_storage() is mine.untyped_storage()
        own = pickle.dumps(mine)
        del mine
        expect(pool, tickets=1, used=True)
        assert (pickle.loads(own).numpy() == 3).all()
        expect(pool, tickets=0, used=False)

        # One message to many: the first opens it, the others while somebody has it; or a message for each.
        shared = st.full((1000,), 3, pool=pool)
        broadcast = pickle.dumps(shared)
        for peer in (one, two):
            peer("keep", broadcast)
        expect(pool, tickets=0, used=True)
        each = [pickle.dumps(shared) for _ in range(2)]
        del shared
        for peer, message in zip((one, two), each):
            peer("drop"), peer("look", message)
        expect(pool, tickets=0, used=False)
        assert stale(broadcast)

        one.end(), two.end()
        print("ok")
    """
    assert run_script(HEAD + textwrap.dedent(code), start_method="fork") == "ok\n"


def test_tickets_tell_age_bytes_and_sender_oldest_first(run_script: RunScript) -> None:
    code = """
    if __name__ == "__main__":
        pool = st.Pool.create(limit=64 << 20)
        began = time.monotonic()
        peer = Peer(pool)
        theirs = peer("make", 4)
        mine = pickle.dumps(st.ones((500,), dtype="uint8", pool=pool))
        tickets = pool.tickets()
        assert [(t.nbytes, t.sender_pid) for t in tickets] == [(8000, peer.process.pid), (500, os.getpid())], tickets
        assert all(t.sender_name and t.sender_name != "?" for t in tickets), tickets
        ages = [t.age_seconds for t in tickets]
        assert time.monotonic() - began >= ages[0] >= ages[1] >= 0, ages
        assert len({t.serial for t in tickets}) == 2
        assert pool.discard_tickets(older_than=time.monotonic() - began) == 0
        peer.end()
        assert pool.discard_tickets(older_than=0) == 2
        assert pool.tickets() == []
        print("ok")
    """
    assert run_script(HEAD + textwrap.dedent(code), start_method="fork") == "ok\n"
