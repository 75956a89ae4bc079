"""``Limits``: the architectures that a network's weights can run."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ..errors import ArchError
from .grammar import ChoiceSpace
from .records import Record, units, with_field
from .schema import Schema
from .space import SearchSpace


@dataclass(frozen=True)
class Limits:
    """Limits of the weights of a network, a stage or a block; :meth:`of_space` makes those of a network.

    Args:
        record: Record of the network, stage or block.
        rules: (name, rule, bound) of each choice. The rule is ``weights`` of its :class:`Choice`, or ``of`` for a
            ratio. The bound is the largest value, the only value, all values, or the hidden units of a ratio.
        parts: Limits of its stages or blocks; None where there are no weights.
    """

    record: type[Record]
    rules: tuple[tuple[str, str, Any], ...]
    parts: tuple[Limits | None, ...] = ()

    @classmethod
    def _of(
        cls, largest: Record, grammar: ChoiceSpace, stage: Record | None, parts: tuple[Limits | None, ...] = ()
    ) -> Limits:
        """Limits of weights that are sized for the largest options."""
        rules: list[tuple[str, str, Any]] = []
        offered = dict(grammar.options)
        for name, choice in type(largest).choices.items():
            value = getattr(largest, name)
            if choice.of:
                rules.append((name, choice.of, units(getattr(stage, choice.of), value)))
            elif choice.weights == 'own':
                rules.append((name, 'own', tuple(choice.read(option, 0) for option in offered[name])))
            elif choice.weights != 'free':
                rules.append((name, choice.weights, value))
        return cls(type(largest), tuple(rules), parts)

    @classmethod
    def of_space(cls, schema: Schema, space: SearchSpace, **stored: int) -> Limits:
        """Limits of the weights of a space's largest architecture.

        Args:
            schema: The schema of the family.
            space: The space.
            **stored: Choices of every stage for which the weights are larger than the space needs.
        """
        most, stages = schema.read(space.largest()), []
        for grammar, largest in zip(space.stages, most.stages):
            stage = largest
            for name, width in stored.items():
                stage = with_field(stage, name, width)
            places = stage.blocks + (None,) * (len(grammar.blocks) - len(stage.blocks))
            blocks = tuple(
                None if block is None or own is None else cls._of(block, own, stage)
                for block, own in zip(places, grammar.blocks)
            )
            stages.append(cls._of(stage, grammar.choices, None, blocks))
        return cls._of(most, space.choices, None, tuple(stages))

    def without_last(self) -> Limits:
        """Return the limits of a network that has no weights of its last stage, where any choice fits."""
        return replace(self, parts=(*self.parts[:-1], None))

    def check_network(self, network: Any) -> None:
        """Check that the weights can run an architecture, given its typed choices.

        Raises:
            ArchError: They cannot; the message begins with the path of the misfit.
        """
        self.check('', network)
        if len(network.stages) != len(self.parts):
            raise ArchError(f'stages has {len(network.stages)} entries; the weights have {len(self.parts)} stages')
        for s, (stage, own) in enumerate(zip(network.stages, self.parts)):
            if own is None:
                continue
            own.check(f'stages[{s}]', stage)
            if len(stage.blocks) > len(own.parts):
                raise ArchError(
                    f'stages[{s}].blocks has {len(stage.blocks)} entries; the weights have {len(own.parts)} blocks'
                )
            for b, (block, limit) in enumerate(zip(stage.blocks, own.parts)):
                if block is None:
                    continue
                if limit is None:
                    raise ArchError(f'stages[{s}].blocks[{b}] is present; the weights have no such block')
                if limit.misfit(block, stage):
                    limit.check(f'stages[{s}].blocks[{b}]', block, stage)

    def misfit(self, record: Record, stage: Record | None = None) -> str:
        """Name of the first choice that does not fit; '' if all do, '.' if the record is of another kind."""
        if type(record) is not self.record:
            return '.'
        for name, rule, bound in self.rules:
            value = getattr(record, name)
            if rule == 'most':
                fits = value <= bound
            elif rule == 'own':
                fits = value in bound
            elif rule == 'same':
                fits = value == bound
            else:
                fits = units(getattr(stage, rule), value) <= bound
            if not fits:
                return name
        return ''

    def check(self, path: str, record: Record, stage: Record | None = None) -> None:
        """Check that the weights can run a record.

        Raises:
            ArchError: They cannot; the message begins with ``path``.
        """
        name = self.misfit(record, stage)
        if name == '.':
            have, there = (', '.join(kind.choices) for kind in (self.record, type(record)))
            raise ArchError(f'{path} chooses {there}; the weights are for {have}')
        if name:
            rule, bound = next((rule, bound) for own, rule, bound in self.rules if own == name)
            value = getattr(record, name)
            if rule == 'own':
                raise ArchError(
                    f'{path}.{name} is {value}; the weights have {", ".join(map(str, bound))} here'.lstrip('.')
                )
            hidden = '' if rule in ('most', 'same') else f', {units(getattr(stage, rule), value)} hidden units'
            shown = int(value) if isinstance(value, bool) else value
            raise ArchError(f'{path}.{name} is {shown}{hidden}; the weights have {bound:d}'.lstrip('.'))
