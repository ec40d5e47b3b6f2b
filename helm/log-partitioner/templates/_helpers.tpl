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

{{/* The settings as variables: `flush: {interval_s: 30}` is LOGP_FLUSH__INTERVAL_S: "30". Below a section lists and
maps are values, as JSON; null is left out. toJson writes large numbers in full where quote would write 2e+09. */}}
{{- define "log-partitioner.variables" -}}
{{- range $section, $settings := .Values.config -}}
{{- if kindIs "map" $settings -}}
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

{{/* What a schema cannot say. W10: SIGKILL must come after the longest flush and the closing; and the longest flush fits
between two polls, as the worker itself demands (45 s: ABORT_S, ANSWER_MARGIN_S and POLL_MARGIN_S of its settings). */}}
{{- define "log-partitioner.validate" -}}
{{- $flush := .Values.config.flush -}}
{{- $kafka := .Values.config.kafka -}}
{{- $longest := maxf $flush.revoke_budget_s (addf $flush.upload_deadline_s $flush.commit_budget_s) -}}
{{- $poll := addf $longest $kafka.transaction_timeout_s 45 -}}
{{- if lt (float64 $kafka.max_poll_interval_s) (float64 $poll) -}}
{{- fail (printf "config.kafka.max_poll_interval_s (%v) must be at least %v: max(config.flush.revoke_budget_s (%v), upload_deadline_s (%v) + commit_budget_s (%v)) + config.kafka.transaction_timeout_s (%v) + 45 for answers, or the group takes the partitions away meanwhile" $kafka.max_poll_interval_s $poll $flush.revoke_budget_s $flush.upload_deadline_s $flush.commit_budget_s $kafka.transaction_timeout_s) -}}
{{- end -}}
{{- $budget := addf $longest $flush.close_budget_s -}}
{{- if le (float64 .Values.terminationGracePeriodSeconds) (float64 $budget) -}}
{{- fail (printf "terminationGracePeriodSeconds (%v) must exceed %v: max(config.flush.revoke_budget_s (%v), upload_deadline_s (%v) + commit_budget_s (%v)) + close_budget_s (%v), or a worker is killed in its last flush" .Values.terminationGracePeriodSeconds $budget $flush.revoke_budget_s $flush.upload_deadline_s $flush.commit_budget_s $flush.close_budget_s) -}}
{{- end -}}
{{- range $path := list "kafka.bootstrap_servers" "kafka.source_topics" "s3.bucket" -}}
{{- $section := index $.Values.config (splitList "." $path | first) | default dict -}}
{{- if not (get $section (splitList "." $path | last)) -}}
{{- fail (printf "config.%s is required" $path) -}}
{{- end -}}
{{- end -}}
{{- end -}}
