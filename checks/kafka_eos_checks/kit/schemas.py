"""Flat table schemas, written once as column -> Spark SQL type, for Spark as DDL and for Arrow."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def ddl(columns: Mapping[str, str]) -> str:
    """The schema in Spark SQL's DDL."""
    return ", ".join(f"`{name}` {kind}" for name, kind in columns.items())


def arrow_schema(columns: Mapping[str, str]) -> "pa.Schema":
    """The schema for Arrow: Spark insists on exactly the types that its own schema names."""
    import pyarrow as pa  # noqa: PLC0415 - the light install has no pyarrow

    types = {
        "bigint": pa.int64(),
        "int": pa.int32(),
        "string": pa.string(),
        "boolean": pa.bool_(),
        "binary": pa.binary(),
    }
    return pa.schema([(name, types[kind]) for name, kind in columns.items()])
