"""Builds the package (PEP 517) with the standard library alone, so that an installation needs no network.

The metadata is that of pyproject.toml. A test compares the two.
"""

import base64
import hashlib
import io
import os
import tarfile
import zipfile

NAME, VERSION = "millstream", "0.1.0"
FILES = ["millstream/__init__.py", "millstream/py.typed"]
SOURCES = ["README.md", "build_package.py", "pyproject.toml", *FILES]

WHEEL = """\
Wheel-Version: 1.0
Generator: build_package
Root-Is-Purelib: true
Tag: py3-none-any
"""


def metadata_lines():
    return [
        "Metadata-Version: 2.1",
        f"Name: {NAME}",
        f"Version: {VERSION}",
        "Summary: Handlers in Python for Millstream workers",
        "License: Apache-2.0 OR MIT",
        "Requires-Python: >=3.9",
        "Description-Content-Type: text/markdown",
    ]


def metadata():
    with open("README.md", encoding="utf-8") as readme:
        return "\n".join([*metadata_lines(), "", readme.read()])


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    about = f"{NAME}-{VERSION}.dist-info"
    contents = {}
    for name in FILES:
        with open(name, "rb") as file:
            contents[name] = file.read()
    contents[f"{about}/METADATA"] = metadata().encode()
    contents[f"{about}/WHEEL"] = WHEEL.encode()
    record = "".join(f"{name},sha256={digest(data)},{len(data)}\n" for name, data in contents.items())
    contents[f"{about}/RECORD"] = f"{record}{about}/RECORD,,\n".encode()
    wheel = f"{NAME}-{VERSION}-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(wheel_directory, wheel), "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in contents.items():
            archive.writestr(name, data)
    return wheel


def build_sdist(sdist_directory, config_settings=None):
    folder = f"{NAME}-{VERSION}"
    with tarfile.open(os.path.join(sdist_directory, f"{folder}.tar.gz"), "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for name in SOURCES:
            archive.add(name, f"{folder}/{name}")
        about = tarfile.TarInfo(f"{folder}/PKG-INFO")
        about.size = len(metadata().encode())
        archive.addfile(about, io.BytesIO(metadata().encode()))
    return f"{folder}.tar.gz"


def digest(data):
    return base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
