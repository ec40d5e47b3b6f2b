"""Cells of the matrix: who is bounced, how, in which protocol, on which store; one after the other on one bed."""

import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Literal, NamedTuple, Self, get_args

from tools.chaos.bed import Bed, make_ground
from tools.chaos.faults import plan_bounces
from tools.chaos.figures import Figures, judged
from tools.chaos.injector import SOME_FAULTS
from tools.chaos.run import Flow, Run, Tell
from tools.demo.options import Protocol

RECORDS = 100_000
_SECONDS = 90.0  # in which the records are written, at least: what nine bounces of workers take
_PUTS_PER_S = 50.0

How = Literal["kill", "stop"]
Whom = Literal["worker", "broker"]
Store = Literal["clean", "faults", "throttled"]


class Cell(NamedTuple):
    """One cell."""

    how: How
    whom: Whom
    protocol: Protocol
    store: Store

    @property
    def name(self) -> str:
        """Its name on the command line and in the record."""
        return "-".join([self.how, f"{self.whom}s", self.protocol, self.store])

    @classmethod
    def all(cls) -> Iterator[Self]:
        """Yield every cell."""
        for store, protocol, whom, how in product(get_args(Store), get_args(Protocol), get_args(Whom), get_args(How)):
            yield cls(how, whom, protocol, store)


def done_cells(record: Path) -> dict[str, Figures]:
    """Return the cells that a record holds, the last one of each name."""
    if not record.exists():
        return {}
    lines = map(json.loads, record.read_text(encoding="utf-8").splitlines())
    return {line["cell"]: line for line in lines if line.get("cell")}


def play_cell(
    bed: Bed,
    cell: Cell,
    *,
    number: int,
    records: int,
    tell: Tell,
    settings: Mapping[str, str] | None = None,
) -> Figures:
    """Play one cell; `number` makes its topics its own on this bed, `settings` are of the workers, beside ours."""
    ground = make_ground(bed, f"cell-{number}", protocol=cell.protocol, settings=settings or {})
    flow = Flow(
        entries_per_s=records / _SECONDS, seconds=0.0, records_min=records, waits_for_recovery=True, seed=number
    )
    if cell.store == "faults":
        bed.store.add(*SOME_FAULTS)
    elif cell.store == "throttled":
        bed.store.pace.set(puts_per_s=_PUTS_PER_S)
    bounces = plan_bounces(target=cell.whom, how=cell.how, seed=number)
    happened = Run(bed, ground, flow, tell=tell).play(bounces)
    figures = judged(
        ground, happened, tell=tell, kind="matrix", cell=cell.name, protocol=cell.protocol, store=cell.store
    )
    if not figures["violations"]:
        ground.remove()
    return figures


def chosen(names: Sequence[str]) -> list[Cell]:
    """Return the cells of these names, all if there is none; a name may be a part of one.

    Raises:
        ValueError: no cell has such a name.
    """
    cells = [cell for cell in Cell.all() if not names or any(name in cell.name for name in names)]
    if not cells:
        raise ValueError(
            f"No cell is named {' or '.join(names)}; there are {', '.join(one.name for one in Cell.all())}."
        )
    return cells
