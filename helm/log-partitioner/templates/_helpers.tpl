{{/* Name of everything; short enough for the label that a StatefulSet puts on its pods (63, less a hash). */}}
{{- define "log-partitioner.fullname" -}}
{{- $chart := .Values.nameOverride | default .Chart.Name -}}
{{- $name := ternary .Release.Name (printf "%s-%s" .Release.Name $chart) (contains $chart .Release.Name) -}}
{{- .Values.fullnameOverride | default $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{/* No two releases of a cluster have the same: none of the three has a dot. The names of objects may be overridden, and
are not in it, so that no override moves a release to another group. */}}
{{- define "log-partitioner.identity" -}}
{{- printf "%s.%s.%s" .Release.Namespace .Release.Name .Chart.Name -}}
{{- end -}}

{{- define "log-partitioner.selectorLabels" -}}
app.kubernetes.io/name: {{ .Values.nameOverride | default .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "log-partitioner.labels" -}}
{{ include "log-partitioner.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{/* Name of an object: a list of the root and a suffix. A CronJob's has 52 characters at most. */}}
{{- define "log-partitioner.named" -}}
{{- $name := include "log-partitioner.fullname" (first .) -}}
{{- printf "%s%s" ($name | trunc (sub 52 (len (last .)) | int) | trimSuffix "-") (last .) -}}
{{- end -}}

{{/* Metadata of an object: a list of the root and of what the object's own values say (namespace, labels, annotations). */}}
{{- define "log-partitioner.metadata" -}}
{{- $root := first . -}}
{{- $own := last . -}}
name: {{ include "log-partitioner.named" (list $root ($own.suffix | default "")) }}
namespace: {{ $own.namespace | default $root.Release.Namespace }}
labels: {{- mergeOverwrite (dict) $root.Values.commonLabels (include "log-partitioner.labels" $root | fromYaml) ($own.labels | default dict) | toYaml | nindent 2 }}
{{- with mergeOverwrite (dict) $root.Values.commonAnnotations ($own.annotations | default dict) }}
annotations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "log-partitioner.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (ternary (include "log-partitioner.fullname" .) "default" .Values.serviceAccount.create) -}}
{{- end -}}

{{/* The settings: those of `config`, and by default the names that carry the release. */}}
{{- define "log-partitioner.config" -}}
{{- $identity := include "log-partitioner.identity" . -}}
{{- $kafka := dict "group_id" $identity -}}
{{- range list "references" "flushes" "dead-letters" "backfills" -}}
{{- $_ := set $kafka (printf "%s_topic" . | replace "-" "_") (printf "%s.%s" $identity .) -}}
{{- end -}}
{{- mergeOverwrite (dict "kafka" $kafka "s3" (dict "prefix" $identity)) (deepCopy .Values.config) | toJson -}}
{{- end -}}

{{/* Settings as variables: a list of the prefix and the settings. `flush: {interval_s: 30}` is LOGP_FLUSH__INTERVAL_S: "30".
Below a section, and under topics, lists and maps are values, as JSON; null is left out. toJson writes large numbers in
full where quote would write 2e+09. */}}
{{- define "log-partitioner.variables" -}}
{{- $prefix := first . -}}
{{- range $section, $settings := last . -}}
{{- if and (kindIs "map" $settings) (ne $section "topics") -}}
{{- range $setting, $value := $settings -}}
{{- if not (kindIs "invalid" $value) }}
{{ printf "%s_%s__%s" $prefix $section $setting | upper }}: {{ include "log-partitioner.text" $value | quote }}
{{- end -}}
{{- end -}}
{{- else if not (kindIs "invalid" $settings) }}
{{ printf "%s_%s" $prefix $section | upper }}: {{ include "log-partitioner.text" $settings | quote }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "log-partitioner.workerVariables" -}}
{{- include "log-partitioner.variables" (list "LOGP" (include "log-partitioner.config" . | fromJson)) -}}
{{- end -}}

{{- define "log-partitioner.text" -}}
{{- ternary . (toJson .) (kindIs "string" .) -}}
{{- end -}}

{{/* Bytes of a size, a setting's or Kubernetes': 1536Mi, 2GiB, 2G, 1000; of others, such as 1e9 or 500m, nothing. */}}
{{- define "log-partitioner.bytes" -}}
{{- $text := toJson . | trimAll "\"" -}}
{{- if regexMatch "^[0-9]+([.][0-9]+)?([kKMGT]i?)?B?$" $text -}}
{{- $unit := regexReplaceAll "^[0-9.]+" $text "" -}}
{{- $factors := dict "" 1 "k" 1000 "m" 1000000 "g" 1000000000 "t" 1000000000000 "ki" 1024 "mi" 1048576 "gi" 1073741824 "ti" 1099511627776 -}}
{{- mulf (trimSuffix $unit $text | float64) (get $factors (lower $unit | trimSuffix "b")) | int64 -}}
{{- end -}}
{{- end -}}

{{/* Seconds of a time such as 30, 500ms or 5m. */}}
{{- define "log-partitioner.seconds" -}}
{{- $text := toJson . | trimAll "\"" -}}
{{- $unit := regexReplaceAll "^[0-9.]+" $text "" -}}
{{- mulf (trimSuffix $unit $text | float64) (get (dict "" 1 "ms" 0.001 "s" 1 "m" 60 "min" 60 "h" 3600 "d" 86400) $unit) -}}
{{- end -}}

{{/* The spool's bytes on disk, and a tenth more for what the file system adds. */}}
{{- define "log-partitioner.spoolBytes" -}}
{{- mulf (include "log-partitioner.bytes" .Values.config.spool.bytes_max | float64) 1.1 | int64 -}}
{{- end -}}

{{/* W10: SIGKILL must come after the longest flush, an abort and leaving (30 s). A worker that is killed loses no data, but
its records are read again. */}}
{{- define "log-partitioner.graceSeconds" -}}
{{- addf (include "log-partitioner.seconds" .Values.config.flush.budget_s | float64) 30 | ceil | int64 -}}
{{- end -}}

{{- define "log-partitioner.workersMax" -}}
{{- .Values.autoscaling.maxReplicas | default .Values.topicPartitions | int64 -}}
{{- end -}}

{{- define "log-partitioner.metricsSelector" -}}
{{- .Values.metricsSelector | default (printf "namespace=\"%s\", pod=~\"%s-[0-9]+\"" .Release.Namespace (include "log-partitioner.fullname" .)) -}}
{{- end -}}
