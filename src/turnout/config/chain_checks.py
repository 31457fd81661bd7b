"""How the steps of a chain must fit together: sources, columns that are there by then, and their types."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace

from turnout.config.config_errors import Faults, SettingPath
from turnout.config.settings import SourceSettings, ViewSettings
from turnout.plan.chains import Step, right_names
from turnout.plan.nearest import did_you_mean
from turnout_client.column_types import ColumnType

ANY_TYPE = replace(ColumnType.parse("string"))
"""In the place of a column type that is wrong by itself: it differs from none."""

_NOT_WITH_STEPS = ("on", "right", "sources", "columns", "sql")


def chain_faults(path: SettingPath, view: ViewSettings, sources: Mapping[str, SourceSettings | None]) -> Faults:
    """The faults of a view with steps; what follows from another fault is not told."""
    for name in _NOT_WITH_STEPS:
        if name in view.model_fields_set:
            yield (*path, name), "does not go with steps; remove it"
    if not view.steps:
        yield (*path, "steps"), "there is none; add one, such as {right: accounts, on: userId}"
    if view.left is None:
        yield (*path, "left"), "is missing; add it"
        return
    places: dict[SettingPath, str] = {(*path, "left"): view.left}
    places |= {(*path, "steps", number, "right"): step.right for number, step in enumerate(view.steps)}
    whole = True
    for number, (place, name) in enumerate(places.items()):
        earlier = list(places.values())[:number]
        if sources and name not in sources:
            yield place, f"no source '{name}' (has: {', '.join(sources)}); {did_you_mean(name, list(sources))}"
        elif name in earlier:
            other = "is the same source as left" if name == view.left else "is named twice"
            yield place, f"{other}, '{name}'; choose another"
        elif sources.get(name) is not None:
            continue
        whole = False
    if whole and view.steps:
        known = {name: source for name in view.read if (source := sources[name])}
        yield from _columns(path, view, known)


def differ(one: ColumnType, other: ColumnType) -> bool:
    """Whether two types that are known are not the same."""
    return one is not ANY_TYPE and other is not ANY_TYPE and one != other


def _columns(path: SettingPath, view: ViewSettings, sources: Mapping[str, SourceSettings]) -> Faults:
    steps = view.chain_steps(view.first_join or view.join)
    columns = {name: tuple(source.columns) for name, source in sources.items()}
    names = right_names(columns, steps)
    there: dict[str, ColumnType] = dict(sources[view.read[0]].columns)
    hidden: dict[str, int] = {}
    for number, (step, shown) in enumerate(zip(steps, names, strict=True)):
        place: SettingPath = (*path, "steps", number, "on")
        right = sources[step.right]
        yield from _met(place, step, there, hidden, right)
        added = {name: right.columns[column] for column, name in shown.items()}
        there |= added
        hidden |= dict.fromkeys(added if step.hides else (), number)
    every = [*columns[view.read[0]], *(name for shown in names for name in shown.values())]
    for column, count in Counter(name.lower() for name in every).items():
        if count > 1:
            among = " or ".join(f"'{name}'" for name in sources)
            yield path, f"would have two columns '{column}'; rename a column of {among}"


def _met(
    place: SettingPath, step: Step, there: Mapping[str, ColumnType], hidden: Mapping[str, int], right: SourceSettings
) -> Faults:
    """The faults of the columns that meet in one step."""
    wrong = False
    if step.left_on not in there:
        has = ", ".join(there)
        fix = did_you_mean(step.left_on, list(there), "fix the name, or put the step that adds it before this one")
        yield place, f"the left side has no column '{step.left_on}' at this step (has: {has}); {fix}"
        wrong = True
    elif step.left_on in hidden:
        shown = f"'{step.left_on}' comes from steps[{hidden[step.left_on]}], whose join shows no right column"
        yield place, f"{shown}; give that step another join"
    if step.right_on not in right.columns:
        fix = did_you_mean(step.right_on, list(right.columns), "fix the name, or write {left: ..., right: ...}")
        yield place, f"source '{step.right}' has no column '{step.right_on}' (has: {', '.join(right.columns)}); {fix}"
        wrong = True
    if wrong:
        return
    kind, other = there[step.left_on], right.columns[step.right_on]
    if differ(kind, other):
        shown = f"'{step.left_on}' is {kind} and '{step.right_on}' of '{step.right}' is {other}"
        yield place, f"{shown}; give both the same type"
    elif not kind.exact:
        shown = f"column '{step.left_on}' is {kind}, which is not exact enough to join by"
        yield place, f"{shown}; use string, int64 or decimal(p,s)"
