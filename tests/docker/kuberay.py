"""What KubeRay's own part of a RayJob (`ray.io/v1`) may have, as a JSON schema: its pods are Kubernetes'."""

from typing import Any

TEXT, FLAG, COUNT, OBJECT = (
    {"type": "string"},
    {"type": "boolean"},
    {"type": "integer", "minimum": 0},
    {"type": "object"},
)
TEXTS = {"type": "object", "additionalProperties": TEXT}


def _of(required: str, **properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": required.split(), "properties": properties, "additionalProperties": False}


_HEAD = _of("template", rayStartParams=TEXTS, template=OBJECT, serviceType=TEXT, headService=OBJECT, enableIngress=FLAG)
_GROUP = _of(
    "groupName template", groupName=TEXT, replicas=COUNT, minReplicas=COUNT, maxReplicas=COUNT, numOfHosts=COUNT,
    rayStartParams=TEXTS, template=OBJECT, scaleStrategy=OBJECT, suspend=FLAG, idleTimeoutSeconds=COUNT,
)  # fmt: skip
_CLUSTER = _of(
    "headGroupSpec", rayVersion=TEXT, headGroupSpec=_HEAD, workerGroupSpecs={"type": "array", "items": _GROUP},
    enableInTreeAutoscaling=FLAG, autoscalerOptions=OBJECT, headServiceAnnotations=TEXTS, suspend=FLAG,
    gcsFaultToleranceOptions=OBJECT, managedBy=TEXT,
)  # fmt: skip
_SPEC = _of(
    "entrypoint rayClusterSpec", entrypoint=TEXT, rayClusterSpec=_CLUSTER, runtimeEnvYAML=TEXT, jobId=TEXT,
    submissionMode={"enum": ["K8sJobMode", "HTTPMode", "InteractiveMode", "SidecarMode"]}, submitterConfig=OBJECT,
    submitterPodTemplate=OBJECT, shutdownAfterJobFinishes=FLAG, ttlSecondsAfterFinished=COUNT, backoffLimit=COUNT,
    activeDeadlineSeconds=COUNT, metadata=TEXTS, clusterSelector=TEXTS, suspend=FLAG, managedBy=TEXT,
    deletionStrategy=OBJECT, entrypointNumCpus={"type": "number"}, entrypointNumGpus={"type": "number"},
    entrypointResources=TEXT,
)  # fmt: skip
RAY_JOB = _of(
    "apiVersion kind metadata spec",
    apiVersion={"const": "ray.io/v1"},
    kind={"const": "RayJob"},
    metadata=OBJECT,
    spec=_SPEC,
)
