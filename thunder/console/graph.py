"""What a task waits for, drawn: its parents, theirs, and so on, in columns from left to right."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

NODES_MOST: Final = 40
DEPTH_MOST: Final = 6
NODE_WIDTH, NODE_HEIGHT = 190.0, 46.0
COLUMN, ROW = 240.0, 62.0
MARGIN = 8.0

Read = Callable[[Sequence[str]], Mapping[str, Mapping[str, Any] | None]]
"""Tasks by id; None for one that is gone."""


@dataclass(frozen=True)
class Node:
    """One task of the drawing; `status` is None when the task is gone."""

    id: str
    status: str | None
    type: str
    parents: tuple[str, ...]
    hidden_parents: int = 0


@dataclass(frozen=True)
class Placed:
    node: Node
    x: float
    y: float


@dataclass(frozen=True)
class Drawing:
    """Placed nodes, the curves between them, and how large it all is."""

    nodes: Sequence[Placed]
    curves: Sequence[str]
    width: float
    height: float
    is_cut: bool

    @property
    def words(self) -> str:
        """For who does not see it."""
        return "; ".join(
            f"{placed.node.id} ({placed.node.status or 'gone'})"
            + (f" waits for {', '.join(placed.node.parents)}" if placed.node.parents else "")
            for placed in self.nodes
        )


@dataclass
class _Walk:
    nodes: dict[str, Node] = field(default_factory=dict)
    is_cut: bool = False


def drawing_of(task: Mapping[str, Any], read: Read) -> Drawing | None:
    """The task and what it waits for, directly or not; at most NODES_MOST of them. None without any parent."""
    if not task.get("dependsOn"):
        return None
    walk = _Walk()
    level: dict[str, Mapping[str, Any] | None] = {str(task["taskId"]): task}
    for depth in range(DEPTH_MOST + 1):
        wanted: dict[str, None] = {}
        for id, found in level.items():
            node = _node(id, found, room=NODES_MOST - len(walk.nodes) - len(level) - len(wanted))
            walk.is_cut = walk.is_cut or bool(node.hidden_parents)
            walk.nodes[id] = node
            wanted |= {parent: None for parent in node.parents if parent not in walk.nodes and parent not in level}
        if not wanted:
            break
        if depth == DEPTH_MOST:
            walk.is_cut = True
            break
        level = dict(read(list(wanted)))
    return _placed(walk)


def _node(id: str, found: Mapping[str, Any] | None, *, room: int) -> Node:
    if found is None:
        return Node(id, None, "", ())
    parents = [str(parent) for parent in found.get("dependsOn", ())]
    kept = parents[: max(0, room)]
    return Node(id, str(found["status"]), str(found.get("type", "")), tuple(kept), len(parents) - len(kept))


def _placed(walk: _Walk) -> Drawing:
    """A column for each depth, the task itself rightmost; in a column, in the order they were met."""
    depths = _depths(walk.nodes)
    deepest = max(depths.values())
    columns: dict[int, list[Node]] = {}
    for node in walk.nodes.values():
        columns.setdefault(depths[node.id], []).append(node)
    tallest = max(len(nodes) for nodes in columns.values())
    placed: dict[str, Placed] = {}
    for depth, nodes in columns.items():
        top = MARGIN + (tallest - len(nodes)) * ROW / 2
        for place, node in enumerate(nodes):
            placed[node.id] = Placed(node, MARGIN + (deepest - depth) * COLUMN, top + place * ROW)
    curves = [
        _curve(placed[parent], placed[id])
        for id, node in walk.nodes.items()
        for parent in node.parents
        if parent in placed
    ]
    width = 2 * MARGIN + deepest * COLUMN + NODE_WIDTH
    height = 2 * MARGIN + tallest * ROW - (ROW - NODE_HEIGHT)
    return Drawing(list(placed.values()), curves, width, height, walk.is_cut)


def _depths(nodes: Mapping[str, Node]) -> dict[str, int]:
    """How many steps each is away by the longest way, so that every line runs from left to right."""
    depths = dict.fromkeys(nodes, 0)
    for _ in nodes:  # as often as the longest way can be long; a stored cycle would never settle
        moved = False
        for node in nodes.values():
            for parent in node.parents:
                if parent in depths and depths[parent] <= depths[node.id]:
                    depths[parent], moved = depths[node.id] + 1, True
        if not moved:
            break
    return depths


def _curve(parent: Placed, child: Placed) -> str:
    """From a parent's right side to a child's left side. A parent in the same or a later column is met from outside."""
    x1, y1 = parent.x + NODE_WIDTH, parent.y + NODE_HEIGHT / 2
    x2, y2 = child.x, child.y + NODE_HEIGHT / 2
    bend = max(24.0, abs(x2 - x1) / 2)
    return f"M{x1:g},{y1:g} C{x1 + bend:g},{y1:g} {x2 - bend:g},{y2:g} {x2:g},{y2:g}"
