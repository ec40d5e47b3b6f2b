"""The chart's README.md, from the comments of values.yaml."""

from __future__ import annotations

from tools.docs.chart_values import Value, values_of
from tools.docs.tables import code, table

_HEAD = """# log-partitioner

Made by `python -m tools.docs` from `values.yaml`; do not edit.

A StatefulSet of workers, and what surrounds it. The least that a release needs, beside the topics and the bucket:

```
helm install logs helm/log-partitioner --namespace prod --values values.yaml
helm test logs --namespace prod --logs      # asks brokers, topics, rights and store, a line for each

config:                                     # values.yaml
  kafka:
    bootstrap_servers: kafka-0.example:9092
    source_topics: [app-logs]
  s3:
    bucket: example-logs
```

**Names.** The release above has the group `prod.logs.log-partitioner`, writes to the topics
`prod.logs.log-partitioner.references`, `.flushes` and `.dead-letters`, and below that prefix in the bucket, so that no
two releases share them by accident. `config` wins; `fullnameOverride` changes none of them. Before you change the
group's name read "Another group on the same topics" in docs/RUNBOOK.md.

**The pipeline** behind the workers is part of the release with `pipeline.enabled` and a catalogue: docs/PIPELINE.md, On
Kubernetes. **A command**, such as `offsets show`, is a Job of the CronJob `NAME-command`: docs/RUNBOOK.md.

**Upgrade and roll back.** Read CHANGELOG.md from your version on. `helm upgrade` with the new chart and image
replaces one worker at a time, each once the one before has been ready for `minReadySeconds`; old and new share the
group meanwhile. Each pod costs two or three rebalances; three took 127 to 139 s (docs/EVIDENCE.md, On Kubernetes).
Then run `helm test`. A version that does not become ready stops the rollout, and the other workers go on: `helm
rollback NAME` brings the old one back. Workers and pipeline are upgraded together; neither has to be first, since
readers pass by what they do not know.

**As a dependency** of another chart it takes `condition: log-partitioner.enabled`, `global.imageRegistry` and
`global.imagePullSecrets`, and `alias` for more than one; the alias is part of the names then.

## Values

A value that is not here is refused. Maps that Kubernetes gets as they are take all that it knows.

"""
_BARE = """
Empty by default, and as Kubernetes, Prometheus' operator or a row above has them: {}.
"""


def chart_page() -> str:
    """Write the page; values without a comment stand with those around them, or in one list if they are empty."""
    values, rows, bare = list(values_of()), [], []
    while values:
        value = values.pop(0)
        name = code(".".join(value.path))
        below = [one for one in values if one.path[: len(value.path)] == value.path]
        if below and not any(one.comment for one in below):
            rows.append((name, code(_text_of(value, below)), value.comment))
            values = values[len(below) :]
        elif value.comment or value.text not in ("", "{}", "[]", '""'):
            rows.append((name, code(value.text) if value.text else "", value.comment))
        elif value.text:
            bare.append(name)
    return _HEAD + table(["value", "default", "meaning"], rows) + _BARE.format(", ".join(bare))


def _text_of(value: Value, below: list[Value]) -> str:
    """Return a value, or those below it as a map on one line."""
    if value.text:
        return value.text
    depth = len(value.path) + 1
    own = [one for one in below if len(one.path) == depth and one.path[:-1] == value.path]
    return "{" + ", ".join(f"{one.path[-1]}: {_text_of(one, below)}" for one in own) + "}"
