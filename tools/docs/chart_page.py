"""The chart's README.md, from the comments of values.yaml."""

from __future__ import annotations

from tools.docs.chart_values import values_of
from tools.docs.tables import code, table

_HEAD = """# log-partitioner

Made by `python -m tools.docs` from `values.yaml`; do not edit.

Workers that turn log records of Kafka into Avro objects by user, date and hour on S3: a StatefulSet, and what surrounds
it. The least that a release needs, beside the topics and the bucket:

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
`prod.logs.log-partitioner.references`, `.flushes` and `.dead-letters`, and below that prefix in the bucket. So no two
releases share them by accident. What `config` says wins; `fullnameOverride` changes none of them. A group of another
name later is another reader of the same records: see "Another group on the same topics" in docs/RUNBOOK.md first.

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


def chart_page() -> str:
    """Write the page."""
    values = list(values_of())
    sections = {value.path[:-1] for value in values}
    rows = [
        (code(".".join(value.path)), "" if value.path in sections else code(value.text), value.comment)
        for value in values
        if value.comment or value.path not in sections
    ]
    return _HEAD + table(["value", "default", "meaning"], rows)
