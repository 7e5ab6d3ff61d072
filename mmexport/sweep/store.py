"""Store rows in one SQLite file. A job is then not repeated under the same versions and commit."""
from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

_TABLE = ('CREATE TABLE IF NOT EXISTS done (key TEXT PRIMARY KEY, config TEXT, backend TEXT, under TEXT, row TEXT, '
          'at TIMESTAMP DEFAULT CURRENT_TIMESTAMP)')


# The time of a row without one: older than any that does.
UNKNOWN = '1970-01-01 00:00:00'


class Store:
    """Keep rows, and find those of the same versions and commit.

    Args:
        place: the SQLite file.
        under: the versions and the commit that a row holds for.
    """

    def __init__(self, place: Path, under: Mapping[str, Any]) -> None:
        place.parent.mkdir(parents=True, exist_ok=True)
        self.under = json.dumps(under, sort_keys=True)
        self.base = sqlite3.connect(place, isolation_level=None)
        self.base.execute('PRAGMA journal_mode=WAL')
        self.base.execute(_TABLE)

    def row(self, criteria: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the row of the config, format, shape and images in `criteria`. It must have these versions and this commit."""
        record = self.base.execute('SELECT row FROM done WHERE key = ?', (_key(criteria, self.under),)).fetchone()
        return None if record is None else dict(json.loads(record[0]))

    def keep(self, row: Mapping[str, Any]) -> None:
        self.base.execute('INSERT OR REPLACE INTO done (key, config, backend, under, row) VALUES (?, ?, ?, ?, ?)',
                          (_key(row, self.under), row['config'], row['backend'], self.under, json.dumps(row)))

    def take(self, rows: Iterable[Mapping[str, Any]]) -> int:
        """Add the missing rows of a ``zoo.json``, and return their number. Versions and commit are kept."""
        before = self.base.total_changes
        for row in rows:
            under = json.dumps(row['under'], sort_keys=True)
            content = {key: value for key, value in row.items() if key not in ('under', 'at')}
            self.base.execute('INSERT OR IGNORE INTO done (key, config, backend, under, row, at) VALUES (?, ?, ?, ?, ?, ?)',
                              (_key(row, under), row['config'], row['backend'], under, json.dumps(content), row.get('at', UNKNOWN)))
        return self.base.total_changes - before

    def rows(self) -> list[dict[str, Any]]:
        """Return the newest row of each config and format. It has its time (UTC), versions and commit."""
        records = self.base.execute('SELECT row, under, at FROM done ORDER BY at, rowid')
        newest = {(row['config'], row['backend']): {**row, 'under': json.loads(under), 'at': at}
                  for row, under, at in ((json.loads(text), under, at) for text, under, at in records)}
        return list(newest.values())

    def close(self) -> None:
        self.base.close()


def _key(row: Mapping[str, Any], under: str) -> str:
    fields = {name: row[name] for name in ('config', 'backend', 'shape', 'images')}
    return hashlib.sha256(f'{json.dumps(fields, sort_keys=True)}{under}'.encode()).hexdigest()
