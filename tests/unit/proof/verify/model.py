"""Legal histories of a group, at random: rebalances, losses, kills, lost answers, processes that were stopped."""

from __future__ import annotations

from random import Random

from tests.unit.proof.verify.pods import MINUTE_MS, Pod, Spans

STEP_MAX = 9


class Group:
    """A group of workers, and what the broker has committed for it."""

    def __init__(self, random: Random) -> None:
        self.pods: list[Pod] = []
        self._random = random
        self._committed: dict[str, int | None] = {f"source-{n}": None for n in range(random.randint(1, 4))}
        self._owner: dict[str, Pod] = {}
        self._has: dict[Pod, set[str]] = {}
        self._generation = 0

    def run(self, steps: int) -> list[Pod]:
        """Work, then let one last worker own everything and commit it twice; gives all pods, the last one last."""
        self._start()
        for _ in range(steps):
            self._step()
        for pod in list(self._has):
            self._kill(pod)
        last = self._start()
        self._rebalance()
        self._commit(last, every=True)
        self._commit(last, every=True)
        return self.pods

    def _step(self) -> None:
        if not self._has or self._random.random() < 0.15:
            self._start()
            self._rebalance()
            return
        pod = self._random.choice(list(self._has))
        actions = [self._commit, self._commit, self._commit, self._fail, self._lose_answer, self._die, self._kill]
        actions += [self._stop, self._lose, self._wake, lambda _pod: self._rebalance()]
        self._random.choice(actions)(pod)

    # Processes.

    def _start(self) -> Pod:
        number = len(self.pods)
        skew_ms = self._random.randint(0, 20) * MINUTE_MS
        pod = Pod(f"w{self._random.randint(1, 3)}", f"b{number}", clock_ms=skew_ms)
        self.pods.append(pod)
        self._has[pod] = set()
        return pod

    def _kill(self, pod: Pod) -> None:
        del self._has[pod]
        self._owner = {tp: owner for tp, owner in self._owner.items() if owner is not pod}

    def _stop(self, pod: Pod) -> None:
        self._wake(pod)
        if self._has[pod]:
            self._commit(pod)
            pod.gives_back(*sorted(self._has[pod]))
        pod.stops()
        self._kill(pod)

    # Who owns what.

    def _rebalance(self) -> None:
        """Move some TopicPartitions; one whose owner is stopped goes on without asking it."""
        self._generation += 1
        moved: dict[Pod, list[str]] = {}
        for tp in self._committed:
            owner = self._owner.get(tp)
            if owner is None or self._random.random() < 0.4:
                moved.setdefault(self._random.choice(list(self._has)), []).append(tp)
                if owner is not None and self._random.random() < 0.7:
                    self._give_back(owner, tp)
        for pod, tps in moved.items():
            self._wake(pod)
            for tp in tps:
                self._own(pod, tp)

    def _give_back(self, pod: Pod, tp: str) -> None:
        self._wake(pod)
        if tp in self._has[pod]:
            if self._random.random() < 0.5:
                self._commit(pod)
            pod.gives_back(tp)
            self._has[pod].discard(tp)
        self._owner.pop(tp, None)

    def _own(self, pod: Pod, tp: str) -> None:
        if tp in self._has[pod]:
            return
        at = self._committed[tp]
        pod.owns(self._generation, source="policy" if at is None else "committed", **{f"p{tp[7:]}": at or 0})
        self._has[pod].add(tp)
        self._owner[tp] = pod

    def _wake(self, pod: Pod) -> None:
        """Tell a process what it has lost meanwhile, and rewind the rest."""
        lost = {tp for tp in self._has[pod] if self._owner.get(tp) is not pod}
        if lost:
            pod.loses(*sorted(lost))
            self._has[pod] -= lost
            self._rewind(pod)

    def _lose(self, pod: Pod) -> None:
        for tp in self._has[pod]:
            self._owner.pop(tp, None)
        self._wake(pod)

    def _rewind(self, pod: Pod) -> None:
        for tp in sorted(self._has[pod]):
            pod.rewinds(self._committed[tp] or 0, partition=int(tp[7:]))

    # Batches.

    def _spans(self, pod: Pod, *, every: bool = False) -> Spans:
        self._wake(pod)
        owned = sorted(self._has[pod])
        some = owned if every else self._random.sample(owned, self._random.randint(0, len(owned)))
        starts = {tp: self._committed[tp] or 0 for tp in some}
        return {tp: (first, first + self._random.randint(1, STEP_MAX)) for tp, first in starts.items()}

    def _take(self, spans: Spans) -> None:
        self._committed |= {tp: end for tp, (_, end) in spans.items()}

    def _commit(self, pod: Pod, *, every: bool = False) -> None:
        if spans := self._spans(pod, every=every):
            self._take(spans)
            pod.commits(spans)

    def _fail(self, pod: Pod) -> None:
        if spans := self._spans(pod):
            pod.gives_up(pod.begins(spans))
            self._rewind(pod)

    def _lose_answer(self, pod: Pod) -> None:
        if spans := self._spans(pod):
            pod.gives_up(pod.begins(spans), outcome="unknown")
            if self._random.random() < 0.5:
                self._take(spans)
            if self._random.random() < 0.7:
                self._rewind(pod)
            else:
                self._kill(pod)

    def _die(self, pod: Pod) -> None:
        """Be killed in a flush."""
        if spans := self._spans(pod):
            pod.begins(spans)
            if self._random.random() < 0.5:
                self._take(spans)
            self._kill(pod)
