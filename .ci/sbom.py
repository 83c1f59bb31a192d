"""Write the bill of materials of a release, as CycloneDX 1.6: `sbom.py OUT SITE_PACKAGES...`.

The Python libraries are those that lie in one of SITE_PACKAGES, the crates those of Cargo.lock.
"""

import sys
import tomllib
from collections.abc import Iterator
from importlib.metadata import distributions
from pathlib import Path

from cyclonedx.model import HashAlgorithm, HashType
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.output import make_outputter
from cyclonedx.schema import OutputFormat, SchemaVersion
from packageurl import PackageURL

TOP = Path(__file__).resolve().parents[1]
NAME = "spoolscope"


def library(kind: str, name: str, version: str, sha256: str | None = None) -> Component:
    """Return a library of a registry: `kind` is that of its package URL."""
    return Component(
        type=ComponentType.LIBRARY,
        name=name,
        version=version,
        purl=PackageURL(kind, name=name, version=version),
        bom_ref=f"{kind}:{name}@{version}",
        hashes=[HashType(alg=HashAlgorithm.SHA_256, content=sha256)] if sha256 else None,
    )


def libraries(sites: list[str]) -> Iterator[Component]:
    """Yield the Python libraries, then the crates that come from a registry."""
    found = {(one.name, one.version) for site in sites for one in distributions(path=[site])}
    for name, version in sorted(found):
        if name != NAME:
            yield library("pypi", name, version)
    for crate in tomllib.loads((TOP / "Cargo.lock").read_text())["package"]:
        if "checksum" in crate:
            yield library("cargo", crate["name"], crate["version"], crate["checksum"])


def main() -> None:
    """Write the bill of materials."""
    out, *sites = sys.argv[1:]
    own = next(found for found in distributions(path=sites) if found.name == NAME)
    bom = Bom(components=libraries(sites))
    bom.metadata.component = Component(
        type=ComponentType.APPLICATION, name=NAME, version=own.version, bom_ref=NAME
    )
    bom.register_dependency(bom.metadata.component, bom.components)
    writer = make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6)
    writer.output_to_file(out, allow_overwrite=True, indent=1)


if __name__ == "__main__":
    main()
