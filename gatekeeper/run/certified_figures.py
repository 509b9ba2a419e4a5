"""The copy of a certified run's figures in the run directory that is compared with it, checked by its digest."""

from gatekeeper.analysis.verdict.against_certified import Certified, CertifiedFigures, compared
from gatekeeper.core import slo as slo_file
from gatekeeper.core.errors import GatekeeperError
from gatekeeper.core.manifest import Manifest, sha256
from gatekeeper.core.parse import json_object
from gatekeeper.core.slo import Slo
from gatekeeper.core.system.inputs import SLO_NAME, load_manifest
from gatekeeper.core.system.run_directory import RunDirectory
from gatekeeper.core.text import json_text

CERTIFIED_NAME = "inputs/certified.json"


def certified_in(directory: RunDirectory, manifest: Manifest, slo: Slo) -> Certified:
    """Read the certified run that a run is compared with; a copy that differs from its digest proves nothing."""
    frozen = manifest.certified
    if frozen is None:
        return Certified()
    if frozen.run is None:
        return Certified(none_yet=True)
    try:
        content = directory.read(CERTIFIED_NAME)
        if sha256(content) != frozen.sha256:
            return Certified(because=f"{CERTIFIED_NAME} was changed after the run was frozen")
        return compared(_parsed(content), manifest, slo)
    except (GatekeeperError, ValueError, LookupError, TypeError, AttributeError) as error:
        return Certified(because=f"{CERTIFIED_NAME} cannot be read: {error}")


def _parsed(content: bytes) -> CertifiedFigures:
    found = json_object(content)
    manifest = load_manifest(json_text(found["manifest"]).encode())
    slo = slo_file.parse(found["slo"], SLO_NAME, stored=True)
    workloads = {
        name: {metric: [(str(canary), float(value)) for canary, value in many] for metric, many in one.items()}
        for name, one in found["workloads"].items()
    }
    return CertifiedFigures(str(found["run"]), manifest, slo, workloads)
