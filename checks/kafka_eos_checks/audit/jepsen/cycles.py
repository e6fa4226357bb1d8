"""Cycles of a directed graph: the shortest one through the first nodes of each component."""

from collections import deque
from collections.abc import Callable, Iterator, Sequence

from kafka_eos_checks.kit.components import components

STARTS = 100  # at most so many nodes of a component are tried as the start of a cycle
VISITS = 200_000  # of nodes in all searches of a component, unless one search needs more: the time stays linear

Edges = Sequence[Sequence[int]]  # by node, its successors


def cycles(edges: Edges, is_free: Callable[[int], bool] = lambda _: False) -> Iterator[list[int]]:
    """A short cycle of each strongly connected component; the cycles are sorted by their nodes.

    Args:
        edges: by node from 0, without edges from a node to itself.
        is_free: whether a node does not count for the length.
    """
    left = _core(edges)
    if not left:
        return
    within = {node: [each for each in edges[node] if each in left] for node in left}
    found = []
    for component in components(within):
        if len(component) > 1:
            members = set(component)
            starts = sorted(node for node in component if not is_free(node))
            tried = [
                _shortest(within, members, start, is_free)
                for start in starts[: max(1, min(STARTS, VISITS // len(component)))]
            ]
            found.append(min(tried, key=lambda cycle: sum(not is_free(node) for node in cycle)))
    yield from sorted(found)


def _core(edges: Edges) -> set[int]:
    """The nodes that remain when nodes without incoming or without outgoing edges are removed, again and again."""
    back: list[list[int]] = [[] for _ in edges]
    for node, others in enumerate(edges):
        for each in others:
            back[each].append(node)
    left = bytearray(b"\1") * len(edges)
    for onward, inward in ((edges, back), (back, edges)):
        count = [sum(left[each] for each in own) for own in inward]
        ready = [node for node, number in enumerate(count) if left[node] and not number]
        while ready:
            node = ready.pop()
            left[node] = 0
            for each in onward[node]:
                count[each] -= 1
                if left[each] and not count[each]:
                    ready.append(each)
    return {node for node, is_left in enumerate(left) if is_left}


def _shortest(within: dict[int, list[int]], members: set[int], start: int, is_free: Callable[[int], bool]) -> list[int]:
    """The shortest cycle through a node of a component."""
    before: dict[int, int] = {}
    length = {start: 0}
    ready = deque([start])
    done: set[int] = set()
    while ready:
        node = ready.popleft()
        if node in done:
            continue
        done.add(node)
        for each in within[node]:
            if each == start:
                cycle = [node]
                while cycle[-1] != start:
                    cycle.append(before[cycle[-1]])
                return cycle[::-1]
            longer = length[node] + (not is_free(each))
            if each in members and longer < length.get(each, len(within) + 1):
                length[each], before[each] = longer, node
                if is_free(each):
                    ready.appendleft(each)
                else:
                    ready.append(each)
    raise AssertionError("a component has a cycle through each of its nodes")
