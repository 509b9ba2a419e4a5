"""An order: one command to be done on another machine, from the first look at it to the run directory here."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

from gatekeeper import host as this_host
from gatekeeper import progress
from gatekeeper.remote.delivery import deliver, ships
from gatekeeper.remote.fetch import fetch
from gatekeeper.remote.follow import follow
from gatekeeper.remote.homecoming import Homecoming, receive
from gatekeeper.remote.hosts import Host
from gatekeeper.remote.installation import Environment, environment
from gatekeeper.remote.ledger import OPEN, Entry, Ledger, new_id, opened
from gatekeeper.remote.link import Link
from gatekeeper.remote.parcel import Parcel, pack
from gatekeeper.remote.survey import Remark, of_inventory, of_link
from gatekeeper.remote.tether import Tether
from gatekeeper.remote.trouble import FarError
from gatekeeper.terms.clock import SystemClock, stamp
from gatekeeper.terms.errors import GatekeeperError, HostLacksError, InputError
from gatekeeper.terms.manifest import Manifest
from gatekeeper.terms.ports import Observer
from gatekeeper.terms.records import Event
from gatekeeper.terms.units import show_seconds
