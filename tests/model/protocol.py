"""The protocol as a state machine small enough to visit every state: two workers, two TopicPartitions, one Kafka.

Names are those of docs/DESIGN.md. A worker reads records into a batch; a flush sends references and offsets in one
transaction; the group's coordinator checks who sends offsets, the transaction's coordinator which producer ends it.
Anything may stand still between two steps, workers die, transactions time out, and the request that ends one may arrive
long after its sender gave up. Schemas, files, uploads and time are left out, because they do not decide who commits.

`Rules` are what the design adds to Kafka. Without any one of them there is a way to a duplicate, which `explore` gives.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

RECORDS = (2, 1)  # of each TopicPartition
WORKERS, TPS = range(2), range(len(RECORDS))
READING, SENT, OFFSETS_SENT, ENDING = "reading", "references sent", "offsets sent", "asked to commit"
NOBODY = -1


class Rules(NamedTuple):
    """The measures of a worker beyond those that suffice on a good day."""

    offsets_with_membership: bool = (
        True  # the group's coordinator checks generation and member of whoever sends offsets
    )
    batch_keeps_membership: bool = True  # a batch is committed as the member that read it, or discarded
    producer_per_transaction: bool = True  # no request of one transaction can mean a later one
    waits_for_open_transactions: bool = True  # whoever owns next asks for committed offsets that are stable


class Transaction(NamedTuple):
    """The open transaction of a worker's transactional id."""

    references: frozenset[tuple[int, int]] = frozenset()  # (TopicPartition, offset)
    offsets: tuple[tuple[int, int], ...] = ()  # (TopicPartition, next offset)


class Worker(NamedTuple):
    """The state of a process; `batch` is [first, next) of each TopicPartition that it takes for its own.

    Generations and producers' epochs are reduced to whether they are still the coordinator's, which the process does
    not know.
    """

    batch: tuple[tuple[int, int] | None, ...] = (None,) * len(RECORDS)
    owns: bool = False  # as far as it knows
    is_current: bool = False  # its generation
    was_read_in_it: bool = False  # its batch
    has_epoch: bool = False  # its producer's
    step: str = READING

    @property
    def has_rows(self) -> bool:
        """Whether there is anything to flush."""
        return any(span and span[0] < span[1] for span in self.batch)


class World(NamedTuple):
    """All there is. `late` are workers whose request to commit is on its way, under the epoch of now."""

    is_stable: bool = False
    members: frozenset[int] = frozenset(WORKERS)
    owners: tuple[int, ...] = (NOBODY,) * len(RECORDS)
    committed: tuple[int, ...] = (0,) * len(RECORDS)
    delivered: tuple[tuple[int, int], ...] = ()  # (TopicPartition, offset), sorted, as often as a reference has it
    transactions: tuple[Transaction, ...] = (Transaction(),) * len(WORKERS)
    workers: tuple[Worker, ...] = (Worker(),) * len(WORKERS)
    late: frozenset[int] = frozenset()
    faults: int = 0

    @property
    def is_exact(self) -> bool:
        """Whether every record below the committed offset is in one reference, and no other is in any."""
        return self.delivered == tuple((tp, offset) for tp in TPS for offset in range(self.committed[tp]))


Step = tuple[str, World]


def steps(world: World, rules: Rules, faults_max: int) -> Iterator[Step]:
    """Give all that may happen next."""
    yield from _coordinate(world)
    for number in WORKERS:
        yield from _read(world, number)
        yield from _flush(world, number, rules)
        yield from _join(world, number, rules)
        if world.faults < faults_max:
            yield from _fail(world._replace(faults=world.faults + 1), number)
        if _is_open(world, number):
            yield f"worker {number}'s transaction times out", _init(world, number)
    for number in world.late:
        arrived = world._replace(late=world.late - {number})
        yield f"worker {number}'s request to commit arrives", _commit(arrived, number)


def _coordinate(world: World) -> Iterator[Step]:
    """Give the group a new generation, when all members have given back what they had."""
    if world.is_stable or not world.members or any(world.workers[number].owns for number in world.members):
        return
    members = sorted(world.members)
    workers = tuple(one._replace(is_current=False, was_read_in_it=False) for one in world.workers)
    for shift in range(len(members)):
        owners = tuple(members[(tp + shift) % len(members)] for tp in TPS)
        name = "a generation begins: " + ", ".join(f"{tp} is worker {one}'s" for tp, one in enumerate(owners))
        yield name, world._replace(is_stable=True, owners=owners, workers=workers)


def _join(world: World, number: int, rules: Rules) -> Iterator[Step]:
    worker, is_member = world.workers[number], number in world.members
    if worker.step != READING:
        return
    if is_member and worker.owns and not world.is_stable:
        yield f"worker {number} gives back what it has, uncommitted", _with(world, number, _empty(worker))
    if is_member and not worker.owns and world.is_stable:
        mine = [tp for tp in TPS if world.owners[tp] == number]
        if rules.waits_for_open_transactions and any(
            tp in dict(one.offsets) for one in world.transactions for tp in mine
        ):
            return
        batch = tuple((world.committed[tp],) * 2 if tp in mine else None for tp in TPS)
        if worker.has_rows:  # it should have forgotten them
            batch = tuple(old if old and new else new for old, new in zip(worker.batch, batch, strict=True))
        owning = worker._replace(owns=True, is_current=True, was_read_in_it=True, batch=batch)
        yield f"worker {number} owns {mine}", _with(world, number, owning)
    if not is_member:
        rejoined = world._replace(members=world.members | {number}, is_stable=False)
        kept = _empty(worker) if rules.batch_keeps_membership else worker._replace(owns=False)
        yield f"worker {number} sees that it was put out, and joins again", _with(rejoined, number, kept)


def _read(world: World, number: int) -> Iterator[Step]:
    worker = world.workers[number]
    for tp, span in enumerate(worker.batch):
        if worker.step == READING and worker.owns and span and span[1] < RECORDS[tp]:
            batch = (*worker.batch[:tp], (span[0], span[1] + 1), *worker.batch[tp + 1 :])
            yield f"worker {number} reads {tp}/{span[1]}", _with(world, number, worker._replace(batch=batch))


def _flush(world: World, number: int, rules: Rules) -> Iterator[Step]:
    worker = world.workers[number]
    if worker.step == READING and worker.owns and worker.has_rows:
        begun = _init(world, number) if rules.producer_per_transaction or not worker.has_epoch else world
        references = {(tp, offset) for tp, span in enumerate(worker.batch) if span for offset in range(*span)}
        sent = _with(begun, number, worker._replace(step=SENT, has_epoch=True))
        yield f"worker {number} sends references of {sorted(references)}", _adding(sent, number, references, ())
    elif worker.step == SENT:
        is_allowed = number in world.members and worker.is_current and worker.was_read_in_it
        if worker.has_epoch and (is_allowed or not rules.offsets_with_membership):
            offsets = tuple((tp, span[1]) for tp, span in enumerate(worker.batch) if span and span[0] < span[1])
            sent = _with(world, number, worker._replace(step=OFFSETS_SENT))
            yield f"worker {number} sends offsets", _adding(sent, number, set(), offsets)
        else:
            yield f"worker {number}'s offsets are refused", _give_up(world, number, rules)
    elif worker.step == OFFSETS_SENT:
        asked = world._replace(late=world.late | {number}) if worker.has_epoch else world
        yield f"worker {number} asks to commit", _with(asked, number, worker._replace(step=ENDING))
    elif worker.step == ENDING:
        if number not in world.late and not _is_open(world, number):
            yield f"worker {number} has its answer", _go_on(world, number)
        yield f"worker {number} has no answer", _give_up(world, number, rules)


def _fail(world: World, number: int) -> Iterator[Step]:
    put_out = world._replace(members=world.members - {number}, is_stable=False)
    if number in world.members:
        yield f"worker {number} stands still and is put out", put_out
    yield f"worker {number} dies", _with(put_out, number, Worker())


def _init(world: World, number: int) -> World:
    """Give the transactional id a new epoch: what is open is aborted, what is on its way under the old one is void."""
    worker = world.workers[number]._replace(has_epoch=False)
    return _having(_with(world, number, worker), number, Transaction())._replace(late=world.late - {number})


def _give_up(world: World, number: int, rules: Rules) -> World:
    """End what is open, commit or not, and go on at the committed offsets: by a new producer, or by the same."""
    if rules.producer_per_transaction:
        return _go_on(_init(world, number), number)
    return _go_on(_having(world, number, Transaction()) if world.workers[number].has_epoch else world, number)


def _go_on(world: World, number: int) -> World:
    """Forget the batch, and read the owned TopicPartitions from the committed offsets on."""
    worker = world.workers[number]
    if number in world.members and worker.is_current:
        spans = tuple((world.committed[tp],) * 2 if span else None for tp, span in enumerate(worker.batch))
        return _with(world, number, worker._replace(batch=spans, step=READING))
    return _with(world, number, _empty(worker))


def _empty(worker: Worker) -> Worker:
    return Worker(has_epoch=worker.has_epoch)


def _commit(world: World, number: int) -> World:
    transaction = world.transactions[number]
    committed = dict(transaction.offsets)
    return _having(world, number, Transaction())._replace(
        committed=tuple(committed.get(tp, world.committed[tp]) for tp in TPS),
        delivered=tuple(sorted([*world.delivered, *transaction.references])),
    )


def _is_open(world: World, number: int) -> bool:
    return world.transactions[number] != Transaction()


def _adding(world: World, number: int, references: set[tuple[int, int]], offsets: tuple[tuple[int, int], ...]) -> World:
    last = world.transactions[number]
    return _having(world, number, Transaction(last.references | references, last.offsets + offsets))


def _with(world: World, number: int, worker: Worker) -> World:
    return world._replace(workers=(*world.workers[:number], worker, *world.workers[number + 1 :]))


def _having(world: World, number: int, transaction: Transaction) -> World:
    return world._replace(transactions=(*world.transactions[:number], transaction, *world.transactions[number + 1 :]))


class Found(NamedTuple):
    """The number of states, and the shortest way to one that is not exact; no way if all are exact.

    `stuck` are states from which no way leads to everything being committed; known if all states are exact.
    """

    states: int
    way: list[str]
    stuck: int


def explore(rules: Rules, *, faults_max: int) -> Found:
    """Visit every state that can be reached with so many faults."""
    start = World()
    came_from: dict[World, list[tuple[World, str]]] = {start: []}
    waiting = deque([start])
    while waiting:
        world = waiting.popleft()
        for name, following in steps(world, rules, faults_max):
            if following not in came_from:
                came_from[following] = []
                waiting.append(following)
            came_from[following].append((world, name))
            if not following.is_exact:
                return Found(len(came_from), _way(came_from, following), 0)
    alive = {world for world in came_from if world.committed == RECORDS}
    waiting = deque(alive)
    while waiting:
        for world, _ in came_from[waiting.popleft()]:
            if world not in alive:
                alive.add(world)
                waiting.append(world)
    return Found(len(came_from), [], len(came_from) - len(alive))


def _way(came_from: dict[World, list[tuple[World, str]]], world: World) -> list[str]:
    way: list[str] = []
    while came_from[world]:
        world, name = came_from[world][0]
        way.append(name)
    return way[::-1]
