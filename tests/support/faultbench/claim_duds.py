"""Duds of the faults of claims: without their effect, no claim may be shown."""

from __future__ import annotations

_KILL = "ackproof.faults.processes.KillInjection.inject"
_PAUSE = "ackproof.faults.processes.PauseInjection.inject"
_MESH = "ackproof.network.meshes.ProxyMesh"
_REQUESTS = "ackproof.network.requests.links.RequestLinks"
CLAIM_DUDS = {
    "C01": (_KILL,),
    "C03": (_PAUSE,),
    "C04": ("ackproof.faults.disks.power_loss.PowerLossInjection.inject",),
    "C06": (_KILL,),
    "C07": (_PAUSE,),
    "C08": (f"{_REQUESTS}.lay",),
    "C09": (_PAUSE, _KILL),
    "C12": (_KILL,),
    "C17": (f"{_MESH}.impose",),
    "C18": (_KILL,),
    "C19": (f"{_REQUESTS}.lay",),
    "C20": (f"{_MESH}.impose",),
    "C21": (_PAUSE,),
    "C22": (f"{_MESH}.impose",),
    "C23": (_KILL,),
    "C24": (_KILL,),
    "C26": (_KILL,),
    "C31": (_KILL,),
    "C34": (_KILL,),
    "C35": (_PAUSE,),
    "C36": (_PAUSE,),
    "C37": (f"{_MESH}.impose",),
    "C38": ("ackproof.faults.disks.disk.EmptyDiskInjection.inject",),
    "C40": (_KILL,),
    "C44": (_KILL,),
    "C47": (f"{_MESH}.impose",),
    "C49": (f"{_REQUESTS}.lay",),
}
"""By claim: the functions of the harness that are replaced by ones that do nothing."""
