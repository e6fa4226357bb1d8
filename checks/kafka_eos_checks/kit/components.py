"""Strongly connected components of a directed graph."""

from collections.abc import Iterator, Mapping, Sequence


def components(within: Mapping[int, Sequence[int]]) -> Iterator[list[int]]:
    """Yield the strongly connected components, by Tarjan's algorithm with an explicit stack.

    Args:
        within: the successors of each node; they are nodes, too.
    """
    number: dict[int, int] = {}
    lowest: dict[int, int] = {}
    open_nodes: list[int] = []
    is_open: set[int] = set()
    for root in sorted(within):
        if root in number:
            continue
        number[root] = lowest[root] = len(number)
        open_nodes.append(root)
        is_open.add(root)
        path = [(root, iter(within[root]))]
        while path:
            node, others = path[-1]
            for each in others:
                if each not in number:
                    number[each] = lowest[each] = len(number)
                    open_nodes.append(each)
                    is_open.add(each)
                    path.append((each, iter(within[each])))
                    break
                if each in is_open:
                    lowest[node] = min(lowest[node], number[each])
            else:
                path.pop()
                if path:
                    lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[node])
                if lowest[node] == number[node]:
                    component: list[int] = []
                    while not component or component[-1] != node:
                        component.append(open_nodes.pop())
                    is_open.difference_update(component)
                    yield component
