"""Hearings: families in folds, on threads or workers; what has ended is not heard again."""

from __future__ import annotations

import time
from collections.abc import Hashable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial

from occamid.errors import DataError, OccamidError
from occamid.files.checkpoints import Checkpoints
from occamid.files.store import Store
from occamid.identification.answers import Answer, Answers, from_bytes, key_of, to_bytes
from occamid.identification.assemble import Workshop
from occamid.identification.crew import Crew
from occamid.identification.families import Family, every_family
from occamid.identification.folds import Fold
from occamid.identification.hearing import miss_of
from occamid.identification.options import Options
from occamid.identification.progress import Clock

Case = tuple[Fold, str, list[str]]  # a fold, which it is in words, and families that share work


@dataclass(frozen=True)
class Court:
    """What all hearings have in common; ``store`` keeps those that have ended."""

    options: Options
    clock: Clock
    checkpoints: Checkpoints | None
    given: int | None
    store: Store | None = None

    def hear(
        self, crew: Crew, held: Sequence[Fold], turns: Sequence[int], tried: Sequence[Family]
    ) -> dict[int, Answers]:
        """Families in some of the folds, side by side; those that share a training, together."""
        groups: dict[Hashable, list[str]] = {}
        for family in tried:
            groups.setdefault(family.training, []).append(family.name)
        # The most flexible take longest: begun first, none is left to run alone.
        units = [(k, names) for names in reversed(groups.values()) for k in turns]
        found = self._all(crew, [(held[k], turn_of(k, held), names) for k, names in units])
        answers: dict[int, Answers] = {k: {} for k in turns}
        for (k, _), own in zip(units, found, strict=True):
            answers[k] |= own
        return answers

    def _all(self, crew: Crew, cases: Sequence[Case]) -> list[Answers]:
        """The answers of every case; those that the store has are not asked for again."""
        known = {n: found for n, case in enumerate(cases) if (found := self.kept(*case))}
        left = [n for n in range(len(cases)) if n not in known]
        court = self if crew.client is None else self.elsewhere()

        def done(number: int, found: Answers) -> None:
            case = cases[left[number]]
            self._ended(*case[1:])
            if court is not self:  # the worker may have kept them where nobody else finds them
                self.keep(found, *case)

        for n in known:
            self._ended(*cases[n][1:])
        heard = crew.do([partial(court.heard, *cases[n]) for n in left], done)
        known |= dict(zip(left, heard, strict=True))
        return [known[n] for n in range(len(cases))]

    def _ended(self, where: str, names: Sequence[str]) -> None:
        for name in names:
            self.clock.sub(f"{where}: {name}").close()
        self.clock.tell(f"{where}: {names[-1]}")

    def elsewhere(self) -> Court:
        """The court on another machine: it has no folder of this one, but a store by its name."""
        named = self.checkpoints.named if self.checkpoints else None
        return replace(self, checkpoints=None, store=named)

    def kept(self, fold: Fold, where: str, names: Sequence[str]) -> Answers | None:
        """What the store has of some families in one fold; what cannot be read is heard again."""
        if self.store is None:
            return None
        content = None
        with suppress(OccamidError):
            content = self.store.get(key_of(self.options, self.given, fold, where, names))
        return None if content is None else from_bytes(content)

    def keep(self, found: Answers, fold: Fold, where: str, names: Sequence[str]) -> None:
        """Put answers into the store, if there is one; without them they are heard again."""
        if self.store is not None:
            key = key_of(self.options, self.given, fold, where, names)
            with suppress(OccamidError):
                self.store.put(key, to_bytes(found))

    def heard(self, fold: Fold, where: str, names: Sequence[str]) -> Answers:
        """Some families in one fold; the answers are kept before anybody else knows them."""
        found = self.answers(fold, where, names)
        self.keep(found, fold, where, names)
        return found

    def answers(self, fold: Fold, where: str, names: Sequence[str]) -> Answers:
        """Some families in one fold; lags, scaling and orders are learned inside it."""
        budget = self.options.budget.for_folds()
        shop = Workshop.of(
            fold.lesson, self.options, budget,
            checkpoints=self.checkpoints, room=fold.shape,
        )  # fmt: skip
        missing = "too few rows"
        try:
            own = {f.name: f for f in every_family(self.options, shop.records, self.given)}
        except DataError as error:
            own, missing = {}, str(error)
        found = {}
        for name in names:
            began = time.perf_counter()
            bar = self.clock.sub(f"{where}: {name}")
            try:
                if name not in own:
                    raise DataError(missing)
                model = shop.model(own[name], bar)
                misses = [miss_of(model, part) for part in fold.runs]
                if not any(map(len, misses)):
                    raise DataError("held-back rows are fewer than the lags")
                found[name] = Answer(model, misses, time.perf_counter() - began)
            except DataError as error:  # too short for these lags, or no model was usable
                why = f"{where}: {error}"
                found[name] = Answer(None, [], time.perf_counter() - began, why)
            bar.close()
        return found


def turn_of(turn: int, held: Sequence[Fold]) -> str:
    """Which fold it is, in words."""
    return f"fold {turn + 1} of {len(held)}"
