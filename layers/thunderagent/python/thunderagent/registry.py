"""Which task types there are: declared by `@task`, collected from named modules, written to `registry.json`, read back.

Discovery is explicit: a handler exists because it stands in a module the registry names. Declarations are checked when
they are made and again as a whole when the registry is built, so that mistakes show at deploy time.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from types import ModuleType
from typing import Any, TypeVar

from thunderagent.errors import ConfigurationError
from thunderagent.payloads import Read, payload_reader
from thunderagent.retry import DEFAULT_BACKOFF, Backoff
from thunderagent.schema import EXECUTOR_MARGIN_SECONDS, NAME_PATTERN, PRIORITIES

REGISTRY_PACKAGE = "thunderagent_registry"
REGISTRY_FILE = "registry.json"
REGISTRY_FORMAT = 1
DEFAULT_QUEUE = "default"
DEFAULT_PRIORITY = "normal"
DEFAULT_EXECUTOR_SECONDS = 900.0
MAX_RETRIES = 100
LEASE_RANGE_SECONDS = (60, 21_600)  # Lambda drops an asynchronous event no sooner than a minute, no later than 6 hours
LONGEST_TIMEOUT_SECONDS = 86_400  # a day: what a long-running agent may take
MARK = "__thunder_tasks__"

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True)
class Declaration:
    """What a handler says of its type. None means 'not said': the queue, then the defaults decide."""

    name: str
    where: str
    timeout: float | None = None
    max_retries: int | None = None
    backoff: Backoff | None = None
    queue: str | None = None
    priority: str | None = None
    lease: float | None = None


@dataclass(frozen=True)
class Handler:
    """A declared function, ready to be called with what `read` makes of the payload."""

    declaration: Declaration
    function: Callable[[Any, Any], Any] = field(repr=False)
    read: Read = field(repr=False)

    @property
    def backoff(self) -> Backoff:
        return self.declaration.backoff or DEFAULT_BACKOFF


# ---- declaring ------------------------------------------------------------------------------------------------------


def task(
    name: str,
    *,
    timeout: float | None = None,
    max_retries: int | None = None,
    backoff: Backoff | None = None,
    queue: str | None = None,
    priority: str | None = None,
    lease: float | None = None,
) -> Callable[[Function], Function]:
    """Declare a plain function `(payload, ctx)` as the handler of a task type; the function is returned as it is.

    `timeout` and `lease` are seconds. Raises ConfigurationError naming module and function for a value or a signature
    that cannot work.
    """

    def declare(function: Function) -> Function:
        where = _where(function)
        declaration = Declaration(name, where, timeout, max_retries, backoff, queue, priority, lease)
        _check_function(function, where)
        _check_values(declaration)
        setattr(function, MARK, (*getattr(function, MARK, ()), declaration))
        return function

    if callable(name):
        raise ConfigurationError(f'{_where(name)}: @task needs the type\'s name, as in @task("report.generate")')
    return declare


def _where(function: Any) -> str:
    module = getattr(function, "__module__", "?")
    return f"{module}:{getattr(function, '__qualname__', repr(function))}"


def _check_function(function: Any, where: str) -> None:
    if not inspect.isfunction(function):
        raise ConfigurationError(f"{where}: @task goes on a function, not on a {type(function).__name__}")
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise ConfigurationError(f"{where}: handlers run in threads and are plain functions; call asyncio.run inside")
    if inspect.isgeneratorfunction(function):
        raise ConfigurationError(f"{where}: a handler returns its result, it does not yield")
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        signature = inspect.signature(function)
        raise ConfigurationError(
            f"{where}{signature}: a handler is called with two arguments, (payload, ctx)"
        ) from None


def _check_values(declaration: Declaration) -> None:
    def refuse(name: str, value: Any, needed: str) -> None:
        raise ConfigurationError(f"{declaration.where}: @task {name}={value!r}: {needed} is needed")

    d = declaration
    if not isinstance(d.name, str) or not NAME_PATTERN.fullmatch(d.name):
        refuse("name", d.name, f"a name matching {NAME_PATTERN.pattern}")
    if d.timeout is not None and not _is_number(d.timeout, 1, LONGEST_TIMEOUT_SECONDS):
        refuse("timeout", d.timeout, f"1 to {LONGEST_TIMEOUT_SECONDS} seconds")
    if d.max_retries is not None and not (_is_whole(d.max_retries) and 0 <= d.max_retries <= MAX_RETRIES):
        refuse("max_retries", d.max_retries, f"a whole number from 0 to {MAX_RETRIES}")
    if d.backoff is not None and not isinstance(d.backoff, Backoff):
        refuse("backoff", d.backoff, "a Backoff")
    if d.queue is not None and not (isinstance(d.queue, str) and NAME_PATTERN.fullmatch(d.queue)):
        refuse("queue", d.queue, f"a name matching {NAME_PATTERN.pattern}")
    if d.priority is not None and d.priority not in PRIORITIES:
        refuse("priority", d.priority, f"one of {', '.join(PRIORITIES)}")
    if d.lease is not None and not _is_number(d.lease, *LEASE_RANGE_SECONDS):
        refuse("lease", d.lease, f"{LEASE_RANGE_SECONDS[0]} to {LEASE_RANGE_SECONDS[1]} seconds")


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _is_number(value: Any, low: float, high: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high


# ---- collecting -----------------------------------------------------------------------------------------------------


def handlers_in(module: ModuleType) -> list[Handler]:
    """The handlers a module declares, in its order; what it merely imported from elsewhere is not its own.

    Raises ConfigurationError when the payload type of one cannot be read.
    """
    functions = {id(value): value for value in vars(module).values() if inspect.isfunction(value)}
    own = [function for function in functions.values() if function.__module__ == module.__name__]
    return [handler for function in own for handler in handlers_of(function)]


def handlers_of(function: Callable[..., Any]) -> list[Handler]:
    """One for each `@task` on the function. Raises ConfigurationError when its payload type cannot be read."""
    return [_handler(declaration, function) for declaration in getattr(function, MARK, ())]


def _handler(declaration: Declaration, function: Callable[..., Any]) -> Handler:
    try:
        return Handler(declaration, function, payload_reader(function))
    except ConfigurationError as error:
        raise ConfigurationError(f"{declaration.where}: {error}") from error


def load_handlers(modules: Iterable[str]) -> dict[str, Handler]:
    """Import the named modules and return their handlers by type. Raises ConfigurationError."""
    return by_type(handler for name in modules for handler in handlers_in(load_module(name)))


def by_type(handlers: Iterable[Handler]) -> dict[str, Handler]:
    """Raises ConfigurationError when two handlers declare one type."""
    found: dict[str, Handler] = {}
    for handler in handlers:
        name = handler.declaration.name
        if name in found:
            first = found[name].declaration.where
            raise ConfigurationError(f"task type {name!r} is declared twice: {first} and {handler.declaration.where}")
        found[name] = handler
    return found


def load_module(name: str) -> ModuleType:
    try:
        return import_module(name)
    except ConfigurationError:
        raise
    except Exception as error:
        raise ConfigurationError(f"module {name} cannot be imported: {type(error).__name__}: {error}") from error


# ---- reading --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TaskType:
    """One declared type as the registry tells it. None: not declared, so the queue and then the defaults decide."""

    name: str
    profile: str
    queue: str = DEFAULT_QUEUE
    priority: str = DEFAULT_PRIORITY
    timeout_seconds: float | None = None
    max_retry_number: int | None = None
    lease_seconds: float | None = None
    backoff: Backoff = DEFAULT_BACKOFF


@dataclass(frozen=True)
class Profile:
    """One executor profile: the modules its handlers stand in, and how long its executor may run."""

    name: str
    modules: tuple[str, ...] = ()
    timeout_seconds: float = DEFAULT_EXECUTOR_SECONDS


@dataclass(frozen=True)
class Registry:
    """What was declared at deploy time. Types that are not in it may be submitted; they wait for their handler."""

    types: Mapping[str, TaskType] = field(default_factory=dict)
    queues: tuple[str, ...] = (DEFAULT_QUEUE,)
    queue_limits: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    profiles: Mapping[str, Profile] = field(default_factory=dict)
    document: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)

    @staticmethod
    def from_dict(document: Mapping[str, Any]) -> Registry:
        """The registry of a parsed `registry.json`. Raises ConfigurationError when it has not that form."""
        if document.get("formatVersion") != REGISTRY_FORMAT:
            raise ConfigurationError(
                f"{REGISTRY_FILE}: formatVersion is {document.get('formatVersion')!r}, this library reads "
                f"{REGISTRY_FORMAT}: build the registry again with the same version"
            )
        try:
            return Registry(
                types={name: _task_type(name, entry) for name, entry in document["types"].items()},
                queues=tuple(document["queues"]),
                queue_limits={name: dict(limits) for name, limits in document["queues"].items() if limits},
                profiles={name: _profile(name, entry) for name, entry in document["profiles"].items()},
                document=document,
            )
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise ConfigurationError(f"{REGISTRY_FILE} has not the form of a registry: {error!r}") from error

    def profile_of(self, type_name: str) -> str | None:
        """The executor profile that has the type's handler; None when no deployed one has."""
        found = self.types.get(type_name)
        return None if found is None else found.profile

    def defaults_of(self, type_name: str) -> Mapping[str, Any]:
        """What the type's declaration says, by the names of task attributes; empty for an unknown type."""
        found = self.types.get(type_name)
        if found is None:
            return {}
        return {
            "queue": found.queue,
            "priority": found.priority,
            "timeoutSeconds": found.timeout_seconds,
            "maxRetryNumber": found.max_retry_number,
            "leaseSeconds": found.lease_seconds,
        }

    def timeout_limit(self, type_name: str) -> float:
        """The longest `timeoutSeconds` a task of the type may have. For an unknown type: the longest of any profile."""
        profile = self.profiles.get(self.profile_of(type_name) or "")
        longest = max((each.timeout_seconds for each in self.profiles.values()), default=DEFAULT_EXECUTOR_SECONDS)
        return (longest if profile is None else profile.timeout_seconds) - EXECUTOR_MARGIN_SECONDS

    def backoff_of(self, type_name: str) -> Backoff:
        found = self.types.get(type_name)
        return DEFAULT_BACKOFF if found is None else found.backoff

    def modules_of(self, profile: str) -> tuple[str, ...]:
        """Raises ConfigurationError for a profile that was not declared."""
        if profile not in self.profiles:
            known = ", ".join(sorted(self.profiles)) or "none"
            raise ConfigurationError(f"executor profile {profile!r} is not in the registry; declared: {known}")
        return self.profiles[profile].modules


def load_registry() -> Registry:
    """The registry deployed beside this code (package `thunderagent_registry`). Raises ConfigurationError."""
    from importlib.resources import files

    try:
        text = files(REGISTRY_PACKAGE).joinpath(REGISTRY_FILE).read_text(encoding="utf-8")
        return Registry.from_dict(json.loads(text))
    except (ModuleNotFoundError, FileNotFoundError) as error:
        raise ConfigurationError(
            f"there is no {REGISTRY_PACKAGE}/{REGISTRY_FILE}: run `thunder registry build`, and deploy its layer"
        ) from error
    except ValueError as error:
        raise ConfigurationError(f"{REGISTRY_FILE} is not JSON: {error}") from error


def _task_type(name: str, entry: Mapping[str, Any]) -> TaskType:
    return TaskType(
        name=name,
        profile=entry["profile"],
        queue=entry.get("queue", DEFAULT_QUEUE),
        priority=entry.get("priority", DEFAULT_PRIORITY),
        timeout_seconds=entry.get("timeoutSeconds"),
        max_retry_number=entry.get("maxRetryNumber"),
        lease_seconds=entry.get("leaseSeconds"),
        backoff=Backoff.from_map(entry.get("backoff") or {}),
    )


def _profile(name: str, entry: Mapping[str, Any]) -> Profile:
    return Profile(name, tuple(entry["modules"]), float(entry.get("timeoutSeconds", DEFAULT_EXECUTOR_SECONDS)))
