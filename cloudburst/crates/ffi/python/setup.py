"""Puts the library cloudburst_ffi into the wheel: that of CLOUDBURST_LIBRARY, or one that cargo builds."""

import json
import os
import pathlib
import shutil
import subprocess

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

SUFFIXES = (".so", ".dylib", ".dll")


def library() -> pathlib.Path:
    """Returns the shared library, built first if none is named."""
    named = os.environ.get("CLOUDBURST_LIBRARY")
    if named:
        if not pathlib.Path(named).is_file():
            raise SystemExit(f"CLOUDBURST_LIBRARY names {named}, and there is no such file")
        return pathlib.Path(named)
    if shutil.which("cargo") is None:
        raise SystemExit(
            "the library is built by cargo, which is not there: install Rust (https://rustup.rs), or name "
            "a library that was built elsewhere by CLOUDBURST_LIBRARY"
        )
    manifest = pathlib.Path(__file__).resolve().parent.parent / "Cargo.toml"
    arguments = ["--release", "--lib", "--message-format=json-render-diagnostics"]
    built = subprocess.run(
        ["cargo", "build", *arguments, "--manifest-path", manifest],
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    for line in built.stdout.splitlines():
        artifact = json.loads(line)
        if artifact.get("target", {}).get("name") != "cloudburst_ffi":
            continue
        for file in map(pathlib.Path, artifact.get("filenames", [])):
            if file.suffix in SUFFIXES:
                return file
    raise SystemExit("cargo has built no shared library cloudburst_ffi")


class BuildWithLibrary(build_py):
    """Copies the library next to the modules."""

    def run(self):
        super().run()
        source = library()
        target = pathlib.Path(self.build_lib, "cloudburst", source.name)
        shutil.copyfile(source, target)


class WheelOfPlatform(bdist_wheel):
    """Names the platform, and any Python 3: the library knows nothing of Python."""

    def get_tag(self):
        _, _, platform = super().get_tag()
        return "py3", "none", platform


class WithLibrary(Distribution):
    """Has code of the platform."""

    def has_ext_modules(self):
        return True


setup(
    distclass=WithLibrary,
    cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": WheelOfPlatform},
)
