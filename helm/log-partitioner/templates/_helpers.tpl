{{/* Name of everything; short enough for the label that a StatefulSet puts on its pods (63, less a hash). */}}
{{- define "log-partitioner.fullname" -}}
{{- $name := ternary .Release.Name (printf "%s-%s" .Release.Name .Chart.Name) (contains .Chart.Name .Release.Name) -}}
{{- $name | trunc 52 | trimSuffix "-" -}}
{{- end -}}

{{- define "log-partitioner.selectorLabels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{- define "log-partitioner.labels" -}}
{{ include "log-partitioner.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end -}}

{{- define "log-partitioner.serviceAccountName" -}}
{{- .Values.serviceAccount.name | default (include "log-partitioner.fullname" .) -}}
{{- end -}}

{{/* The settings as variables: `flush: {interval_s: 30}` is LOGP_FLUSH__INTERVAL_S: "30". Below a section, and
under topics, lists and maps are values, as JSON; null is left out. toJson writes large numbers in full where quote would write 2e+09. */}}
{{- define "log-partitioner.variables" -}}
{{- range $section, $settings := .Values.config -}}
{{- if and (kindIs "map" $settings) (ne $section "topics") -}}
{{- range $setting, $value := $settings -}}
{{- if not (kindIs "invalid" $value) }}
{{ printf "LOGP_%s__%s" $section $setting | upper }}: {{ include "log-partitioner.text" $value | quote }}
{{- end -}}
{{- end -}}
{{- else if not (kindIs "invalid" $settings) }}
{{ printf "LOGP_%s" $section | upper }}: {{ include "log-partitioner.text" $settings | quote }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "log-partitioner.text" -}}
{{- ternary . (toJson .) (kindIs "string" .) -}}
{{- end -}}

{{/* The spool's bytes on disk, and a tenth more for what the file system adds. */}}
{{- define "log-partitioner.spoolBytes" -}}
{{- mulf .Values.config.spool.bytes_max 1.1 | int64 -}}
{{- end -}}

{{/* W10: SIGKILL must come after the longest flush, an abort and leaving (30 s). A worker that is killed loses no data, but
its records are read again. */}}
{{- define "log-partitioner.graceSeconds" -}}
{{- addf .Values.config.flush.budget_s 30 | ceil | int64 -}}
{{- end -}}

{{/* What a schema cannot say. */}}
{{- define "log-partitioner.validate" -}}
{{- range $path := list "kafka.bootstrap_servers" "kafka.source_topics" "s3.bucket" -}}
{{- $section := index $.Values.config (splitList "." $path | first) | default dict -}}
{{- if not (get $section (splitList "." $path | last)) -}}
{{- fail (printf "config.%s is required" $path) -}}
{{- end -}}
{{- end -}}
{{- end -}}
