#!/usr/bin/env python3
"""Checks that the small models of tests/data/tiny are those that tools/tiny makes: the manifest's hashes of the
scripts, of the archive and of every file in it. Prints what differs and exits 1 if anything does.

usage: tools/check_tiny_models.py [--self-test]
"""

import hashlib
import json
import pathlib
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
REMEDY = "`make goldens` makes them again"


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def differences(data, scripts):
    """What the manifest in folder `data` says that is not so."""
    manifest = json.loads((data / "manifest.json").read_text())
    found = {path.name: sha256(path.read_bytes()) for path in sorted(scripts.glob("*.py"))}
    for name in sorted(found.keys() | manifest["scripts"].keys()):
        if found.get(name) != manifest["scripts"].get(name):
            yield f"{scripts.name}/{name} is not the script that made the models: {REMEDY}"
    archive = data / "models.tar.xz"
    if sha256(archive.read_bytes()) != manifest["archive"]:
        yield f"{archive.name} is not the archive that the manifest names: {REMEDY}"
    with tarfile.open(archive) as tar:
        held = {member.name: sha256(tar.extractfile(member).read()) for member in tar}
    for name in sorted(held.keys() | manifest["files"].keys()):
        if held.get(name) != manifest["files"].get(name):
            yield f"{name} in {archive.name} is not the file that the manifest names: {REMEDY}"


def write_sample(folder):
    """A folder of scripts and one of data that belong together."""
    scripts, data = folder / "tiny", folder / "data"
    scripts.mkdir()
    data.mkdir()
    (scripts / "make.py").write_text("pass\n")
    (folder / "a.gguf").write_text("weights")
    with tarfile.open(data / "models.tar.xz", "w:xz") as tar:
        tar.add(folder / "a.gguf", "a.gguf")
    manifest = {"scripts": {"make.py": sha256(b"pass\n")}, "files": {"a.gguf": sha256(b"weights")},
                "archive": sha256((data / "models.tar.xz").read_bytes())}
    (data / "manifest.json").write_text(json.dumps(manifest))
    return scripts, data, manifest


def self_test():
    with tempfile.TemporaryDirectory() as name:
        scripts, data, manifest = write_sample(pathlib.Path(name))
        assert not list(differences(data, scripts))
        (scripts / "make.py").write_text("changed\n")
        (scripts / "new.py").write_text("")
        manifest["archive"], manifest["files"] = "0", {"b.gguf": "0"}
        (data / "manifest.json").write_text(json.dumps(manifest))
        found = list(differences(data, scripts))
        assert len(found) == 5, found  # two scripts, the archive, a.gguf and b.gguf


def main():
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        return 0
    found = list(differences(ROOT / "tests" / "data" / "tiny", ROOT / "tools" / "tiny"))
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
