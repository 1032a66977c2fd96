"""``llmsim catalog``: what comes with the package."""

from __future__ import annotations

import click

from simulator.catalog import KINDS, Catalog, read_document, read_text
from simulator.errors import InputError, nearest


@click.command("catalog")
@click.argument("kind", required=False)
@click.argument("name", required=False)
def command(kind: str | None, name: str | None) -> None:
    """List the kinds of entries, the entries of one KIND, or show the one called NAME.

    An entry is shown as its YAML: every figure with its unit, source and status.
    """
    catalog = Catalog()
    if kind is not None and kind not in KINDS:
        raise InputError(f"no kind of entry called {kind!r}", remedy=nearest(kind, list(KINDS)))
    if name is not None and kind is not None:
        _show(catalog, kind, name)
    else:
        for one in KINDS if kind is None else [kind]:
            _list(catalog, one)


def _list(catalog: Catalog, kind: str) -> None:
    names = catalog.names(kind)
    width = max(map(len, names), default=0)
    click.echo(f"{kind}:")
    for name in names:
        title = read_document(catalog.path(kind, name)).data.get("title", "")
        click.echo(f"  {name:<{width}}  {title}".rstrip())


def _show(catalog: Catalog, kind: str, name: str) -> None:
    catalog.entry(kind, name)
    path = catalog.path(kind, name)
    click.echo(f"# {path}")
    click.echo(read_text(path), nl=False)
