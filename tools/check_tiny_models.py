#!/usr/bin/env python3
"""Checks that the small models of tests/data/tiny are those that tools/tiny makes, and the heads of tests/data/heads
those of tools/head_goldens: the manifests' hashes of the scripts, of the archives and of every file in them. Prints what
differs and exits 1 if anything does.

usage: tools/check_tiny_models.py [--self-test]
"""

import hashlib
import json
import pathlib
import sys
import tarfile
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
# Data, scripts, archive, and what makes it again.
MADE = [("tests/data/tiny", "tools/tiny", "models.tar.xz", "`make goldens`"),
        ("tests/data/heads", "tools/head_goldens", "heads.tar.xz", "`make head-goldens`")]


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def differences(data, scripts, archive, maker):
    """What the manifest in folder `data` says that is not so."""
    remedy = f"{maker} makes them again"
    manifest = json.loads((data / "manifest.json").read_text())
    found = {path.name: sha256(path.read_bytes()) for path in sorted(scripts.glob("*.py"))}
    for name in sorted(found.keys() | manifest["scripts"].keys()):
        if found.get(name) != manifest["scripts"].get(name):
            yield f"{scripts.name}/{name} is not the script that made the models: {remedy}"
    archive = data / archive
    if sha256(archive.read_bytes()) != manifest["archive"]:
        yield f"{archive.name} is not the archive that the manifest names: {remedy}"
    with tarfile.open(archive) as tar:
        held = {member.name: sha256(tar.extractfile(member).read()) for member in tar}
    for name in sorted(held.keys() | manifest["files"].keys()):
        if held.get(name) != manifest["files"].get(name):
            yield f"{name} in {archive.name} is not the file that the manifest names: {remedy}"


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
        made = (data, scripts, "models.tar.xz", "make")
        assert not list(differences(*made))
        (scripts / "make.py").write_text("changed\n")
        (scripts / "new.py").write_text("")
        manifest["archive"], manifest["files"] = "0", {"b.gguf": "0"}
        (data / "manifest.json").write_text(json.dumps(manifest))
        found = list(differences(*made))
        assert len(found) == 5, found  # two scripts, the archive, a.gguf and b.gguf


def main():
    if sys.argv[1:] == ["--self-test"]:
        self_test()
        return 0
    found = [line for data, scripts, *rest in MADE for line in differences(ROOT / data, ROOT / scripts, *rest)]
    for line in found:
        print(line)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
