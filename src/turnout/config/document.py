"""The configuration as a document: YAML text, `${NAME}` in its values, and TURNOUT_... in the environment.

What a setting means is `settings.py`, and whether it fits the others `checks.py`.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import yaml
from pydantic import BaseModel, SecretStr

from turnout.config.config_errors import SettingPath, annotation_at, child, describe, is_model
from turnout.plan.nearest import did_you_mean

PREFIX = "TURNOUT_"
# Read by other parts of Turnout: where jars are cached and come from, and which server a command talks to.
NOT_SETTINGS = frozenset({"TURNOUT_CACHE", "TURNOUT_MAVEN_MIRROR", "TURNOUT_TOKEN", "TURNOUT_URL"})
_OF_KUBERNETES = re.compile(
    r"TURNOUT_(\w+_)?(SERVICE_HOST|SERVICE_PORT(_\w+)?|PORT_\d+_(TCP|UDP|SCTP)(_\w+)?)=|TURNOUT_(\w+_)?PORT=\w+://"
)
"""What Kubernetes sets in each pod beside a Service `turnout` or `turnout-...`, with its value."""
KEEP = object()
_MOST_ALIASED = 100_000
_VARIABLE = re.compile(r"\$\$\{|\$\{([^}]*)\}")


class _Loader(yaml.SafeLoader):
    """YAML 1.2's plain scalars, and no key twice.

    PyYAML follows 1.1, where `on:` is true, `1:30` is 90 and `010` is 8; here they are text, like dates.
    """

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.faults: list[str] = []
        self._open_anchors: list[str | None] = []
        self._nodes = self._aliased = 0
        self._sizes: dict[int, int] = {}

    def compose_node(self, parent: Any, index: Any) -> Any:
        """Refuse a node that contains itself, and count what anchors stand for: of a few bytes, millions of values."""
        event: Any = self.peek_event()  # type: ignore[no-untyped-call]
        mark: Any = event.start_mark
        is_alias = isinstance(event, yaml.AliasEvent)
        if is_alias and event.anchor in self._open_anchors:
            raise yaml.composer.ComposerError(None, None, f"*{event.anchor} contains itself", mark)
        self._open_anchors.append(getattr(event, "anchor", None))
        before = self._nodes
        node = super().compose_node(parent, index)
        self._open_anchors.pop()
        if is_alias:
            self._nodes += self._sizes[id(node)]
            self._aliased += self._sizes[id(node)]
        else:
            self._nodes += 1
            self._sizes[id(node)] = self._nodes - before
            if isinstance(node, yaml.MappingNode):
                self._find_duplicates(node)  # before `<<` is merged: a merged key may be overridden
        if self._aliased > _MOST_ALIASED:
            problem = f"its anchors stand for more than {_MOST_ALIASED:,} values; write less, without anchors"
            raise yaml.composer.ComposerError(None, None, problem, mark)
        return node

    def _find_duplicates(self, node: yaml.MappingNode) -> None:
        lines: dict[str, int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode) or key.tag.endswith(":merge"):
                continue
            line = key.start_mark.line + 1
            if key.value in lines:
                first = lines[key.value]
                self.faults.append(f"line {line}: '{key.value}' is given twice (first in line {first}); remove one")
            lines.setdefault(key.value, line)


for _tag, _pattern, _first in (
    ("bool", r"true|True|TRUE|false|False|FALSE", "tTfF"),
    ("int", r"[-+]?(?:0|[1-9][0-9]*)", "-+0123456789"),
    ("float", r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?", "-+.0123456789"),
    ("float", r"[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)", "-+."),
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("merge", r"<<", "<"),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"(?:{_pattern})$"), list(_first))


class _Dumper(yaml.SafeDumper):
    """Puts in quotes what YAML 1.1 or the loader here would not read as text."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


for _first, _resolvers in _Loader.yaml_implicit_resolvers.items():
    for _tag, _regexp in _resolvers:
        _Dumper.add_implicit_resolver(_tag, _regexp, [_first])


def to_yaml(document: Mapping[str, Any]) -> str:
    """The document as text that `parse_yaml` reads back; without comments, which may hold anything."""
    text: str = yaml.dump(document, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)
    return text


def parse_yaml(text: str) -> tuple[Any, list[str]]:
    """The document and its faults; a text that is no YAML gives None and why."""
    try:
        loader = _Loader(text)
        return loader.get_single_data(), list(dict.fromkeys(loader.faults))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # Where and why, without the line itself: it may hold a secret.
        mark = getattr(error, "problem_mark", None)
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        problem = getattr(error, "problem", None) or "it cannot be read"
        return None, [f"{where}not YAML ({problem}); correct it (${{...}} and text with ': ' need quotes)"]


def root_node(text: str) -> yaml.Node | None:
    """The root of a text that is YAML, for `line_of`; None where it is empty or none."""
    try:
        return _Loader(text).get_single_node()
    except (yaml.YAMLError, ValueError, RecursionError):
        return None


def line_of(root: yaml.Node | None, path: SettingPath) -> int | None:
    """The line of a setting, or of the section that would have it; None where the text has neither."""
    node, line = root, None
    for step in path:
        if isinstance(node, yaml.MappingNode):
            pair = next((pair for pair in node.value if getattr(pair[0], "value", None) == str(step)), None)
            if pair is None:
                break
            line, node = pair[0].start_mark.line + 1, pair[1]
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int) and step < len(node.value):
            node = node.value[step]
            line = node.start_mark.line + 1
        else:
            break
    return line


def nodes(node: Any, path: SettingPath = ()) -> Iterator[tuple[SettingPath, Any]]:
    """Every node of a tree below its root, with its path, those above first."""
    if path:
        yield path, node
    if isinstance(node, Mapping | list):
        for step, below in node.items() if isinstance(node, Mapping) else enumerate(node):
            yield from nodes(below, (*path, step))


def at(tree: Any, path: SettingPath) -> Any:
    """What a document has at a path; None where it has nothing."""
    for step in path:
        if isinstance(tree, Mapping):
            tree = tree.get(step)
        elif isinstance(tree, list) and isinstance(step, int) and step < len(tree):
            tree = tree[step]
        else:
            return None
    return tree


def changed(node: Any, change: Callable[[SettingPath, Any], Any], path: SettingPath = ()) -> Any:
    """A copy of a tree. `change` gets each node, from the root on, and gives another, or KEEP: then those below it."""
    if (new := change(path, node)) is not KEEP:
        return new
    if isinstance(node, Mapping):
        return {step: changed(value, change, (*path, step)) for step, value in node.items()}
    if isinstance(node, list):
        return [changed(value, change, (*path, step)) for step, value in enumerate(node)]
    return node


def substitute(
    tree: Any, environ: Mapping[str, str], skip: Mapping[SettingPath, str]
) -> tuple[Any, dict[SettingPath, str]]:
    """The tree with `${NAME}` replaced in its values, and what could not be; `skip` stays."""
    unset: dict[SettingPath, str] = {}

    def fill(path: SettingPath, node: Any) -> Any:
        if path in skip:
            return node
        if not isinstance(node, str):
            return KEEP
        missing = [name for name in _VARIABLE.findall(node) if name not in environ and name]
        if "${}" in node.replace("$${", ""):
            missing.append("")
        if missing:
            names = ", ".join(f"'{name}'" for name in missing)
            unset[path] = f"the environment has no variable {names}; set it ($${{ is a plain ${{)"
            return node
        return _VARIABLE.sub(lambda match: "${" if match[1] is None else environ[match[1]], node)

    return changed(tree, fill), unset


def override(
    document: dict[str, Any], root: type[BaseModel], environ: Mapping[str, str]
) -> tuple[dict[str, Any], dict[SettingPath, str], list[str]]:
    """The document with TURNOUT_... values in it, which variable each came from, and their faults."""
    origins: dict[SettingPath, str] = {}
    faults: list[str] = []
    # Shorter names first: TURNOUT_SERVER gives the whole section, and TURNOUT_SERVER__PORT one value of it.
    for name in sorted(environ, key=lambda name: (name.count("__"), name)):
        if not name.startswith(PREFIX) or name in NOT_SETTINGS or _OF_KUBERNETES.match(f"{name}={environ[name]}"):
            continue
        known = dict(_variables(document, root))
        path = known.get(name.upper())
        if path is None:  # perhaps a raw property that the file does not have
            above, _, word = name.rpartition("__")
            path = (*known.get(above.upper(), ()), word)
            if len(path) == 1 or not word or annotation_at(root, path[:-1]) != dict[str, str]:
                faults.append(f"{name}: unknown setting in the environment; {did_you_mean(name, list(known))}")
                continue
        # Text stays text, so that a password of digits is one; anything else is read as YAML.
        if annotation_at(root, path) in (str, SecretStr):
            value = environ[name] or None
        else:
            value, wrong = parse_yaml(environ[name])
            faults += [f"{name}: {fault}" for fault in wrong]
        document = _with(document, path, value)
        origins[path] = name
    return document, origins, faults


def _variables(
    document: Any, annotation: Any, before: str = PREFIX, path: SettingPath = ()
) -> Iterator[tuple[str, SettingPath]]:
    """Every variable that would be a setting, and where that is."""
    if is_model(annotation):
        steps = list(annotation.model_fields)
    else:
        steps = [str(name) for name in document] if isinstance(document, Mapping) else []
    for step in steps:
        name, place = f"{before}{step.upper()}", (*path, step)
        yield name, place
        below = document.get(step) if isinstance(document, Mapping) else None
        yield from _variables(below, child(annotation, step), f"{name}__", place)


def _with(node: Any, path: SettingPath, value: Any) -> Any:
    """The tree with another value at a path; nothing is changed in place, since YAML anchors share nodes."""
    if not path:
        return value
    children = dict(node) if isinstance(node, Mapping) else {}
    children[path[0]] = _with(children.get(path[0]), path[1:], value)
    return children


def unfilled(faults: Iterable[str], raw: Any, filled: Any) -> Iterator[str]:
    """Faults with `${NAME}` back in place of its value: what the environment holds may be a secret."""
    texts = [(node, at(filled, path)) for path, node in nodes(raw) if isinstance(node, str)]
    values = [(written, value) for written, value in texts if isinstance(value, str) and value not in ("", written)]
    for text in faults:
        for written, value in values:
            for shown in {repr(value), f"'{value.strip()}'", describe(value)}:
                text = text.replace(shown, f"'{written}'")
        yield text
