"""Describe the samples as a Data Package: python traces/samples/describe.py writes it beside them.

It needs the package spoolscope, whose registry has the meaning of each column.
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from spoolscope.traces.columns import Table
from spoolscope.traces.schema import TABLES

HERE = Path(__file__).resolve().parent


def samples() -> list[Path]:
    """Return the directories of the samples."""
    return sorted(file.parent for file in HERE.glob("*/meta.json"))


def schema(table: Table) -> dict[str, Any]:
    """Return the schema of a table, with units in the descriptions."""
    fields = [
        {
            "name": column.name,
            "type": _type(str(column.type)),
            "description": column.meaning + (f" Unit: {column.unit}." if column.unit else ""),
        }
        for column in table.columns
    ]
    return {"$schema": "https://datapackage.org/profiles/2.0/tableschema.json", "fields": fields}


def _type(arrow: str) -> str:
    if arrow.startswith("int"):
        return "integer"
    return "boolean" if arrow == "bool" else "string"


def resource(file: Path) -> dict[str, Any]:
    data = file.read_bytes()
    found = {
        "name": f"{file.parent.name}-{file.stem.replace('_', '-')}",
        "path": str(file.relative_to(HERE)),
        "format": file.suffix[1:],
        "bytes": len(data),
        "hash": f"sha256:{hashlib.sha256(data).hexdigest()}",
    }
    if file.suffix == ".parquet":
        found["mediatype"] = "application/vnd.apache.parquet"
        found["schema"] = f"schemas/{file.stem}.json"
    return found


def package() -> dict[str, Any]:
    files = [file for sample in samples() for file in sorted(sample.iterdir())]
    return {
        "$schema": "https://datapackage.org/profiles/2.0/datapackage.json",
        "name": "spoolscope-samples",
        "title": "System calls of mail servers, a mail desktop and backups on their filesystems",
        "description": "Recorded with spoolscope; names are pseudonyms. See README.md.",
        "licenses": [
            {
                "name": "CC0-1.0",
                "title": "CC0 1.0 Universal",
                "path": "https://creativecommons.org/publicdomain/zero/1.0/",
            }
        ],
        "keywords": ["mail", "maildir", "system calls", "trace", "filesystem", "ext4"],
        "resources": [resource(file) for file in files],
    }


def written(value: dict[str, Any]) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False) + "\n"


def main() -> None:
    (HERE / "schemas").mkdir(exist_ok=True)
    for name, table in TABLES.items():
        (HERE / "schemas" / f"{name}.json").write_text(written(schema(table)))
    (HERE / "datapackage.json").write_text(written(package()))


if __name__ == "__main__":
    main()
