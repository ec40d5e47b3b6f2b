{{/* Secrets that are named, and what they hold where the chart can look at them. */}}
{{- define "log-partitioner.secretsChecksum" -}}
{{- $seen := list .Values.secret.version -}}
{{- range compact (prepend .Values.certificates .Values.secret.name) -}}
{{- $seen = append $seen (dict . (lookup "v1" "Secret" $.Release.Namespace .).data) -}}
{{- end -}}
{{- toJson $seen | sha256sum -}}
{{- end -}}

{{- define "log-partitioner.image" -}}
{{- $global := .Values.global | default dict -}}
{{- with get $global "imageRegistry" | default .Values.image.registry }}{{ . }}/{{ end -}}
{{- .Values.image.repository -}}
{{- with .Values.image.digest }}@{{ . }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end -}}
{{- end -}}

{{- define "log-partitioner.container" -}}
{{- $name := include "log-partitioner.fullname" . -}}
image: {{ include "log-partitioner.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
envFrom:
  - configMapRef:
      name: {{ $name }}
  {{- if and .Values.secret.name (eq .Values.secret.as "env") }}
  - secretRef:
      name: {{ .Values.secret.name }}
  {{- end }}
  {{- with .Values.extraEnvFrom }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
env:
  # Part of the transactional id: a restarted pod fences what its predecessor left open.
  - name: LOGP_WORKER
    valueFrom:
      fieldRef:
        fieldPath: metadata.name
  {{- if and .Values.secret.name (eq .Values.secret.as "files") }}
  - name: LOGP_SECRETS_DIR
    value: /etc/log-partitioner/secrets
  {{- end }}
  {{- with .Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
securityContext: {{- toYaml .Values.securityContext | nindent 2 }}
volumeMounts:
  - name: spool
    mountPath: {{ .Values.config.spool.directory }}
  - name: tmp
    mountPath: /tmp
  {{- range include "log-partitioner.mounted" . | fromJsonArray }}
  - name: {{ .volume.name }}
    mountPath: {{ .path }}
    readOnly: true
  {{- end }}
  {{- with .Values.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end -}}

{{/* What is mounted to be read: Secrets, and the files of values. */}}
{{- define "log-partitioner.mounted" -}}
{{- $mounted := list -}}
{{- if and .Values.secret.name (eq .Values.secret.as "files") -}}
{{- $volume := dict "name" "secrets" "secret" (dict "secretName" .Values.secret.name "defaultMode" 288) -}}
{{- $mounted = append $mounted (dict "path" "/etc/log-partitioner/secrets" "volume" $volume) -}}
{{- end -}}
{{- range $number, $name := .Values.certificates -}}
{{- $volume := dict "name" (printf "certificates-%d" $number) "secret" (dict "secretName" $name "defaultMode" 288) -}}
{{- $mounted = append $mounted (dict "path" (printf "/etc/log-partitioner/certificates/%s" $name) "volume" $volume) -}}
{{- end -}}
{{- if .Values.files -}}
{{- $volume := dict "name" "files" "configMap" (dict "name" (printf "%s-files" (include "log-partitioner.fullname" .))) -}}
{{- $mounted = append $mounted (dict "path" "/etc/log-partitioner/files" "volume" $volume) -}}
{{- end -}}
{{- toJson $mounted -}}
{{- end -}}

{{- define "log-partitioner.pod" -}}
serviceAccountName: {{ include "log-partitioner.serviceAccountName" . }}
automountServiceAccountToken: false
# A Service named `logp` would put LOGP_SERVICE_HOST into the pod, which the worker refuses as no setting.
enableServiceLinks: false
securityContext: {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- with concat .Values.imagePullSecrets (get (.Values.global | default dict) "imagePullSecrets" | default list) }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- range $key := list "nodeSelector" "tolerations" "affinity" "priorityClassName" "runtimeClassName" "schedulerName" "hostAliases" "dnsPolicy" "dnsConfig" }}
{{- with get $.Values $key }}
{{ $key }}: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}

{{/* All volumes but the spool's, and that one where it is no claim. */}}
{{- define "log-partitioner.volumes" -}}
# The compiler of Protobuf schemas reads and writes files, a few at once.
- name: tmp
  emptyDir:
    sizeLimit: 64Mi
{{- range include "log-partitioner.mounted" . | fromJsonArray }}
- {{- toYaml .volume | nindent 2 }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
