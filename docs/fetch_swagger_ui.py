"""Puts the files of Swagger UI, which /docs serves, into `src/holdfast/api/docs_page/swagger_ui`.

For a new version: set `VERSION`, run `.venv/bin/python docs/fetch_swagger_ui.py`, put the digests that it prints into
`FILES`, and run it again. It needs npm and a package registry. `tests/api/test_docs_page.py` checks that the folder
holds exactly these files.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

VERSION = "5.35.0"
FOLDER = Path(__file__).parent.parent / "src/holdfast/api/docs_page/swagger_ui"
# The files to take from the package, and their SHA-256.
FILES = {
    "LICENSE": "cfc7749b96f63bd31c3c42b5c471bf756814053e847c10f3eb003417bc523d30",
    "NOTICE": "0d20d1adef18aee3f40dd258172155521ce702ac445cb5f7b7d60ed32dad2fb2",
    "swagger-ui-bundle.js": "e6a898692f2d768e807c3ba4626068a69a2c5dd960dd6c76f3e4d3a3de180af2",
    "swagger-ui-bundle.js.LICENSE.txt": "37eb6e7e59aed57b2c1acf076574b818ea07b74265717e0bd67b59e0baf9abbb",
    "swagger-ui.css": "3e86072be98d5b8b6090f51cd0a7bb8dafe8f165f201b865fa917d4014fc48e5",
}


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def fetched() -> dict[str, bytes]:
    """The files of the package, by name."""
    npm = shutil.which("npm")
    if npm is None:
        sys.exit("npm is needed")
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([npm, "pack", f"swagger-ui-dist@{VERSION}"], cwd=folder, check=True, capture_output=True)
        (archive,) = Path(folder).iterdir()
        with tarfile.open(archive) as package:
            return {name: _content(package, name) for name in FILES}


def _content(package: tarfile.TarFile, name: str) -> bytes:
    file = package.extractfile(f"package/{name}")
    assert file is not None
    # The lines that lead to source maps would make browsers ask for files that are not here.
    lines = file.read().split(b"\n")
    return b"\n".join(line for line in lines if b"# sourceMappingURL=" not in line)


def main() -> None:
    files = fetched()
    wrong = {name: digest(data) for name, data in files.items() if digest(data) != FILES[name]}
    for name, found in wrong.items():
        sys.stdout.write(f'    "{name}": "{found}",\n')
    if wrong:
        sys.exit("These digests differ from FILES; nothing was written.")
    shutil.rmtree(FOLDER, ignore_errors=True)
    FOLDER.mkdir(parents=True)
    for name, data in files.items():
        (FOLDER / name).write_bytes(data)


if __name__ == "__main__":
    main()
