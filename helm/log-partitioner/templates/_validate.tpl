{{/* What a schema cannot say, all at once: a sentence for each mistake. */}}
{{- define "log-partitioner.validate" -}}
{{- $values := .Values -}}
{{- $config := include "log-partitioner.config" . | fromJson -}}
{{- $wrong := list -}}

{{- if not $values.enabled -}}
{{- $wrong = append $wrong "enabled: false leaves nothing out here; it is for a chart that depends on this one, with `condition: log-partitioner.enabled`." -}}
{{- end -}}

{{- $needed := dict "kafka.bootstrap_servers" "brokers to start from, such as kafka-0.example:9092" "kafka.source_topics" "the topics to read, such as [app-logs]" "s3.bucket" "the bucket to write to, such as example-logs" -}}
{{- range $path, $meaning := $needed -}}
{{- $names := splitList "." $path -}}
{{- if not (get (get $config (first $names)) (last $names)) -}}
{{- $wrong = append $wrong (printf "config.%s is not set: %s." $path $meaning) -}}
{{- end -}}
{{- end -}}

{{- if and (eq $values.secret.as "files") (not $values.secret.name) -}}
{{- $wrong = append $wrong "secret.name is not set, and secret.as is files: there is nothing to mount." -}}
{{- end -}}

{{- /* A default may change, as by an alias; a group that somebody names is meant. */ -}}
{{- $live := (lookup "v1" "ConfigMap" .Release.Namespace (include "log-partitioner.fullname" .)).data -}}
{{- if and .Release.IsUpgrade $live (not (get (get $values.config "kafka" | default dict) "group_id")) -}}
{{- $group := get $live "LOGP_KAFKA__GROUP_ID" | default "log-partitioner" -}}
{{- if ne $group $config.kafka.group_id -}}
{{- $wrong = append $wrong (printf "config.kafka.group_id is not set, and the release has group %s: as group %s it would publish every record again. Set it, the topics that are written and config.s3.prefix to what ConfigMap %s has, or by default had." $group $config.kafka.group_id (include "log-partitioner.fullname" .)) -}}
{{- end -}}
{{- end -}}

{{- if and $values.podMonitor.enabled $values.serviceMonitor.enabled -}}
{{- $wrong = append $wrong "podMonitor.enabled and serviceMonitor.enabled exclude each other: every worker would be scraped twice." -}}
{{- end -}}

{{- $spool := include "log-partitioner.spoolBytes" . | int64 -}}
{{- $size := include "log-partitioner.bytes" $values.persistence.size -}}
{{- if and $values.persistence.enabled $size (lt ($size | int64) $spool) -}}
{{- $wrong = append $wrong (printf "persistence.size (%s) must be at least %d: config.spool.bytes_max and a tenth." $values.persistence.size $spool) -}}
{{- end -}}
{{- if and $values.persistence.enabled $values.emptyDir.medium -}}
{{- $wrong = append $wrong "persistence.enabled and emptyDir.medium exclude each other: there is one volume for the spool." -}}
{{- end -}}
{{- $memory := (get $values.resources "limits" | default dict).memory | default "" -}}
{{- $limit := include "log-partitioner.bytes" $memory -}}
{{- if and $values.emptyDir.medium $limit (le ($limit | int64) $spool) -}}
{{- $wrong = append $wrong (printf "resources.limits.memory (%s) must hold the worker and, with emptyDir.medium: Memory, the spool: config.spool.bytes_max and a tenth are %d bytes." $memory $spool) -}}
{{- end -}}

{{- $partitions := $values.topicPartitions | int64 -}}
{{- if $values.autoscaling.enabled -}}
{{- $most := include "log-partitioner.workersMax" . | int64 -}}
{{- if not $most -}}
{{- $wrong = append $wrong "autoscaling.maxReplicas is not set: at most the TopicPartitions of the source." -}}
{{- else if lt $most ($values.autoscaling.minReplicas | int64) -}}
{{- $wrong = append $wrong (printf "autoscaling.minReplicas (%v) is more than autoscaling.maxReplicas (%d)." $values.autoscaling.minReplicas $most) -}}
{{- end -}}
{{- if and $partitions (gt $most $partitions) -}}
{{- $wrong = append $wrong (printf "autoscaling.maxReplicas (%d) is more than topicPartitions (%d): the others would stay idle." $most $partitions) -}}
{{- end -}}
{{- if and (eq $values.autoscaling.by "keda") (not $values.autoscaling.keda.serverAddress) -}}
{{- $wrong = append $wrong "autoscaling.keda.serverAddress is not set: the address of Prometheus, such as http://prometheus-operated.monitoring:9090." -}}
{{- end -}}
{{- else if and $partitions (gt ($values.replicaCount | int64) $partitions) -}}
{{- $wrong = append $wrong (printf "replicaCount (%v) is more than topicPartitions (%d): the others would stay idle." $values.replicaCount $partitions) -}}
{{- end -}}

{{- $wrong = concat $wrong (include "log-partitioner.pipeline.wrong" . | fromJsonArray) -}}

{{- if $wrong -}}
{{- fail (printf "\n%s" (join "\n" $wrong)) -}}
{{- end -}}
{{- end -}}

{{/* Mistakes in the values of the pipeline, as a list. */}}
{{- define "log-partitioner.pipeline.wrong" -}}
{{- $pipeline := .Values.pipeline -}}
{{- $wrong := list -}}
{{- if $pipeline.enabled -}}
{{- $config := include "log-partitioner.pipeline.config" . | fromJson -}}
{{- $type := get $config.catalog "type" -}}

{{- if not $type -}}
{{- $wrong = append $wrong "pipeline.config.catalog.type is not set: postgres, rest or glue; or sqlite for a trial, with pipeline.catalogClaim." -}}
{{- else if and (eq $type "sqlite") (or (not $pipeline.catalogClaim) $pipeline.executors.enabled) -}}
{{- $wrong = append $wrong "pipeline.config.catalog.type is sqlite, a file that pods lose: set it to postgres, rest or glue; or, for a trial without executors, pipeline.catalogClaim to the name of a PersistentVolumeClaim." -}}
{{- else if and (has $type (list "postgres" "rest")) (not $config.catalog.uri) -}}
{{- $wrong = append $wrong (printf "pipeline.config.catalog.uri is not set: %s." (ternary "host:port/database" "the URL of the catalogue" (eq $type "postgres"))) -}}
{{- end -}}

{{- range $section := list "spark" "catalog" -}}
{{- range $name, $_ := (get $config $section | default dict).properties -}}
{{- if regexMatch "(?i)password|passwd|passphrase|secret|key[.]pem|jaas|credential|token$" $name -}}
{{- $wrong = append $wrong (printf "pipeline.config.%s.properties has %s, which is secret: put PIPELINE_%s__PROPERTIES, a JSON object of all of them, into the Secret." $section $name (upper $section)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- if not $pipeline.table.enabled -}}
{{- if and $pipeline.audit.enabled (has "--table" $pipeline.audit.args) -}}
{{- $wrong = append $wrong "pipeline.audit.args has --table, and pipeline.table.enabled is false: there would be no table to compare with." -}}
{{- end -}}
{{- range $job := list "compact" "userActivity" -}}
{{- if (get $pipeline $job).enabled -}}
{{- $wrong = append $wrong (printf "pipeline.%s.enabled is true, and pipeline.table.enabled is false: it works on the table." $job) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if and $pipeline.compact.enabled (not $pipeline.audit.enabled) -}}
{{- $wrong = append $wrong "pipeline.compact.enabled is true, and pipeline.audit.enabled is false: it rewrites only hours that an audit has passed." -}}
{{- end -}}

{{- if and $pipeline.executors.enabled (not $pipeline.serviceAccount.create) (not $pipeline.serviceAccount.name) -}}
{{- $wrong = append $wrong "pipeline.serviceAccount.name is not set, and pipeline.serviceAccount.create is false: with executors the account may make pods, which would be `default`." -}}
{{- end -}}

{{- range $job := include "log-partitioner.pipeline.jobs" . | fromJsonArray -}}
{{- $spark := get (mergeOverwrite (deepCopy $config) $job.config) "spark" | default dict -}}
{{- $heap := include "log-partitioner.bytes" (printf "%si" (get $spark "driver_memory" | default "2g" | lower | trimSuffix "b" | replace "k" "K" | replace "m" "M" | replace "g" "G" | replace "t" "T")) -}}
{{- $memory := (get ($job.resources | default $pipeline.resources) "limits" | default dict).memory | default "" -}}
{{- $limit := include "log-partitioner.bytes" $memory -}}
{{- if and $limit $heap (lt ($limit | int64) (add ($heap | int64) 1073741824)) -}}
{{- $wrong = append $wrong (printf "resources.limits.memory of pipeline's %s (%s) must hold the heap, config.spark.driver_memory, and 1Gi for Java and Python beside it." $job.name $memory) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- toJson $wrong -}}
{{- end -}}
