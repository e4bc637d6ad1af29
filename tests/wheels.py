"""Builds a local package index of wheel files, so that tests can install packages without network access."""

from __future__ import annotations

import base64
import csv
import hashlib
import io
import zipfile
from pathlib import Path


def wheel(index: Path, name: str, version: str, source: str) -> None:
    """Add a wheel with one module to the index."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": source,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = io.StringIO()
    writer = csv.writer(rows)
    for path, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest()).rstrip(b"=").decode()
        writer.writerow([path, f"sha256={digest}", len(content)])
    writer.writerow([f"{info}/RECORD", "", ""])
    place = index / name
    place.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(place / f"{name}-{version}-py3-none-any.whl", "w") as made:
        for path, content in {**files, f"{info}/RECORD": rows.getvalue()}.items():
            made.writestr(path, content)
    links = "".join(f'<a href="{one.name}">{one.name}</a>' for one in sorted(place.glob("*.whl")))
    (place / "index.html").write_text(f"<!doctype html><html><body>{links}</body></html>")
