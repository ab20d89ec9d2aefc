"""A jinja2 environment for templates that come out of model files: hostile input.

On top of jinja2's immutable sandbox it refuses instead of hiding: a forbidden attribute raises,
filters are an allow-list, every loop pass and macro call costs a step, and strings and numbers
cannot be blown up. What is left is bounded work per step; a server that must answer others
meanwhile still wants a time limit of its own around a render.
"""

from __future__ import annotations

import datetime
import json
import re
from collections.abc import Callable, Mapping, Sized
from typing import Any, NoReturn

from jinja2 import Environment, Template, nodes, pass_context
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context, Undefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace
from jinja2.visitor import NodeTransformer

MAX_RENDERED = 1 << 22  # characters in the result, and in any string on the way
_MAX_STEPS = 1_000_000  # loop passes of a render
_CALL_STEPS = 8  # a macro call costs about as much as so many passes
_MAX_WORK = 1 << 30  # characters copied by joins and calls of a render
_MAX_NUMBER_BITS = 1024
_MAX_WIDTH = 10_000  # of padding
_MAX_INDENT = 16  # of JSON

# Filters that read all of a value as text, and the others that chat templates use.
_TEXT_FILTERS = frozenset(
    {"capitalize", "e", "escape", "forceescape", "indent", "join", "lower", "replace", "string"}
    | {"sum", "title", "tojson", "trim", "upper", "wordcount"}
)
_FILTERS = _TEXT_FILTERS | frozenset(
    {"abs", "attr", "count", "d", "default", "dictsort", "first", "float", "groupby", "int"}
    | {"items", "last", "length", "list", "map", "max", "min", "reject", "rejectattr", "reverse"}
    | {"safe", "select", "selectattr", "sort", "unique"}
)
_GLOBALS = frozenset({"range", "dict", "namespace", "cycler", "joiner"})
_BUDGET = "pyggml budget"  # the space keeps it out of a template's reach
_PADDING = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs", "indent"})
_WIDE_PERCENT = re.compile(r"%(\([^)]*\))?[-+ #0]*(\d*\.)?(\d{5}|\*)")
# In braces also what reaches into an argument: its size is not known beforehand.
_WIDE_BRACES = re.compile(r"\{([^{}:]*[.\[]|[^{}]*(\{|\d{5}))")


class Budget:
    """What one render may still spend."""

    def __init__(self) -> None:
        """Start full."""
        self.steps = _MAX_STEPS
        self.work = _MAX_WORK

    def step(self, n: int) -> None:
        """Pay for loop passes or a macro call."""
        self.steps -= n
        if self.steps < 0:
            raise SecurityError(f"more than {_MAX_STEPS} loop passes")

    def text(self, n_chars: int) -> None:
        """Pay for a string of that length."""
        if n_chars > MAX_RENDERED:
            raise SecurityError(f"a text of more than {MAX_RENDERED} characters")
        self.work -= n_chars
        if self.work < 0:
            raise SecurityError("too much text was copied")


class _Generation(Extension):
    """`{% generation %}...{% endgeneration %}`, which marks text for training: passed through."""

    def __init__(self, environment: Environment) -> None:
        """Register the tag."""
        super().__init__(environment)
        self.tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """Return the statements between the tags."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Guards(NodeTransformer):
    """Adds a step to every loop and macro, and sends `~` through the environment."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        # The pass is paid before a loop's own filter (`for x in xs if ...`) skips it.
        node.iter = _environment_call("guarded_iter", [node.iter])
        return self._with_step(node)

    def visit_Macro(self, node: nodes.Macro) -> nodes.Node:
        return self._with_step(node, _CALL_STEPS)

    def visit_CallBlock(self, node: nodes.CallBlock) -> nodes.Node:
        return self._with_step(node, _CALL_STEPS)

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:
        self.generic_visit(node)
        return _environment_call("guarded_concat", [nodes.List(node.nodes)])

    def _with_step(self, node: Any, cost: int = 1) -> nodes.Node:
        self.generic_visit(node)
        step = _environment_call("guarded_step", [nodes.Const(cost)])
        node.body.insert(0, nodes.ExprStmt(step))
        return node  # type: ignore[no-any-return]


def _environment_call(name: str, args: list[Any]) -> nodes.Call:
    context = nodes.ContextReference()
    return nodes.Call(nodes.EnvironmentAttribute(name), [context, *args], [], None, None)


class ChatEnvironment(ImmutableSandboxedEnvironment):
    """The environment of chat templates; `load` compiles one, `start` opens a render."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self) -> None:
        """Set up filters and globals as chat templates expect them."""
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=[_Generation, loopcontrols],
            finalize=_finalize,
        )
        self.filters = {k: v for k, v in self.filters.items() if k in _FILTERS}
        self.filters["tojson"] = _tojson
        self.filters = {k: _guarded_filter(k, v) for k, v in self.filters.items()}
        self.globals = {k: v for k, v in self.globals.items() if k in _GLOBALS}
        self.globals["raise_exception"] = _raise_exception
        self.globals["strftime_now"] = _strftime_now

    def load(self, source: str) -> Template:
        """Compile a template with its guards.

        Raises:
            Exception: whatever jinja2 or Python make of a bad source.
        """
        tree = _Guards().visit(self.parse(source))
        tree.set_environment(self)
        tree.set_lineno(1)  # of the new nodes only
        return Template.from_code(self, self.compile(tree), self.make_globals(None))

    @staticmethod
    def start(variables: Mapping[str, Any]) -> dict[str, Any]:
        """Return the variables of one render with a full budget among them."""
        return {**variables, _BUDGET: Budget()}

    def unsafe_undefined(self, obj: Any, attribute: str) -> NoReturn:
        """Refuse at once; jinja2's own undefined value would print as an empty text."""
        raise SecurityError(f"access to attribute {attribute!r} of a {type(obj).__name__}")

    def guarded_step(self, context: Context, cost: int) -> None:
        """Pay for a loop pass or a macro call."""
        _budget(context).step(cost)

    def guarded_iter(self, context: Context, items: Any) -> Any:
        """Pay for the passes of a loop, as far as their number is known."""
        if isinstance(items, Sized):
            _budget(context).step(len(items))
        return items

    def guarded_concat(self, context: Context, parts: list[Any]) -> str:
        """Join as `~` does."""
        _budget(context).text(_length(parts))
        return "".join(map(str, parts))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """Compute `left operator right` unless the result would be huge."""
        if operator == "*":
            _check_product(context, left, right)
        elif operator == "**":
            _check_power(left, right)
        elif operator == "%" and isinstance(left, str):
            _check_format(_WIDE_PERCENT, left)
            _budget(context).text(len(left) + left.count("%") * _length(right))
        result = super().call_binop(context, operator, left, right)
        if isinstance(result, (str, list, tuple)):
            _budget(context).text(len(result))
        return result

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """Return a stand-in for str.format that is sandboxed and checked, None for all else."""
        inner = super().wrap_str_format(value)
        if inner is None:
            return None

        @pass_context
        def guarded(context: Context, *args: Any, **kwargs: Any) -> str:
            _check_method(context, value.__self__, "format", args, kwargs)
            return inner(*args, **kwargs)

        return guarded

    def call(self, context: Context, obj: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call as the sandbox does, with the string methods that can grow a text checked."""
        owner = getattr(obj, "__self__", None)
        if isinstance(owner, str):
            _check_method(context, owner, getattr(obj, "__name__", ""), args, kwargs)
        return super().call(context, obj, *args, **kwargs)


def _budget(context: Context) -> Budget:
    budget: Budget = context.parent[_BUDGET]
    return budget


@pass_context
def _finalize(context: Context, value: Any) -> Any:
    _budget(context).text(_length(value))
    return value


def _raise_exception(message: Any) -> NoReturn:
    raise TemplateError(str(message))


def _strftime_now(pattern: str) -> str:
    if re.search(r"\d{5}", pattern) or len(pattern) > _MAX_WIDTH:
        raise SecurityError("strftime_now: the format is too wide")
    return datetime.datetime.now().strftime(pattern)


def _tojson(
    value: Any,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Write JSON as it is: no HTML escapes, other alphabets kept."""
    if indent is not None and not 0 <= indent <= _MAX_INDENT:
        raise SecurityError(f"tojson: indent {indent}")
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )


def _guarded_filter(name: str, inner: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a filter so that it pays for what it reads and cannot blow up a text."""
    wants = getattr(inner, "jinja_pass_arg", None)

    @pass_context
    def guarded(context: Context, value: Any, *args: Any, **kwargs: Any) -> Any:
        if name in ("join", "sum"):
            value = list(value)  # it may be a generator
        if name in _TEXT_FILTERS:
            _budget(context).text(_length(value))
        elif isinstance(value, Sized):
            _budget(context).step(len(value) // 8)
        if name in ("indent", "replace"):
            _check_method(context, str(value), name, args, kwargs)
        elif name == "join":
            separator = max(map(_length, (*args, *kwargs.values())), default=0)
            _budget(context).text(len(value) * separator)
        if wants is None:
            return inner(value, *args, **kwargs)
        first = {"eval_context": context.eval_ctx, "environment": context.environment}
        return inner(first.get(wants.name, context), value, *args, **kwargs)

    return guarded


def _check_method(
    context: Context, text: str, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Refuse a call of a string method whose result would be huge."""
    given = (*args, *kwargs.values())
    budget = _budget(context)
    budget.text(len(text))
    strings = [x for x in given if isinstance(x, str)]
    if name in _PADDING:
        _check_widths(given)
    if name == "indent":
        widest = max((_MAX_WIDTH, *map(len, strings))) if given else 4
        budget.text(len(text) + (text.count("\n") + 1) * widest)
    elif name == "expandtabs":
        budget.text(len(text) + text.count("\t") * (_MAX_WIDTH if given else 8))
    elif name == "replace" and len(strings) > 1:
        budget.text(len(text) + text.count(strings[0]) * len(strings[1]))
    elif name == "join" and args and isinstance(args[0], (list, tuple)):
        budget.text(_length(args[0]) + len(text) * len(args[0]))
    elif name == "format":
        _check_format(_WIDE_BRACES, text.replace("{{", "").replace("}}", ""))
        budget.text(_length(given) * (text.count("{") + 1))
    elif name == "translate":
        raise SecurityError("str.translate")


def _length(value: Any) -> int:
    """Return about how long a value is as text, without making that text.

    Raises:
        SecurityError: longer than any text may be.
    """
    total, rest = 0, [value]
    while rest:
        item = rest.pop()
        if isinstance(item, str):
            total += len(item)
        elif isinstance(item, Namespace):
            raise SecurityError("a namespace used as text")
        elif not isinstance(item, Undefined):
            total += 1
            if isinstance(item, Mapping):
                rest += [*item.keys(), *item.values()]
            elif isinstance(item, (list, tuple, set, frozenset)):
                rest += item
        if total > MAX_RENDERED:
            raise SecurityError(f"a text of more than {MAX_RENDERED} characters")
    return total


def _check_widths(values: tuple[Any, ...]) -> None:
    for value in values:
        if isinstance(value, int) and abs(value) > _MAX_WIDTH:
            raise SecurityError(f"a width of {value}")


def _check_format(wide: re.Pattern[str], pattern: str) -> None:
    if wide.search(pattern):
        raise SecurityError("a format whose width is too large or given as an argument")


def _check_product(context: Context, left: Any, right: Any) -> None:
    if isinstance(left, int) and isinstance(right, int):
        if left.bit_length() + right.bit_length() > _MAX_NUMBER_BITS:
            raise SecurityError("a number that is too large")
        return
    for many, times in ((left, right), (right, left)):
        if isinstance(many, (str, list, tuple)) and isinstance(times, int):
            _budget(context).text(len(many) * max(times, 0))


def _check_power(base: Any, exponent: Any) -> None:
    both = isinstance(base, int) and isinstance(exponent, int)
    if both and base.bit_length() * abs(exponent) > _MAX_NUMBER_BITS:
        raise SecurityError("a number that is too large")
