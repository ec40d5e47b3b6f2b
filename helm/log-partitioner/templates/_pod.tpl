{{/* Secrets that are named, and what they hold where the chart can look at them. */}}
{{- define "log-partitioner.secretsChecksum" -}}
{{- $seen := list .Values.secret.version -}}
{{- range compact (prepend .Values.certificates .Values.secret.name) -}}
{{- $seen = append $seen (dict . (lookup "v1" "Secret" $.Release.Namespace .).data) -}}
{{- end -}}
{{- toJson $seen | sha256sum -}}
{{- end -}}

{{/* A list of the root and of an image's values. */}}
{{- define "log-partitioner.image" -}}
{{- $root := first . -}}
{{- with last . -}}
{{- with get ($root.Values.global | default dict) "imageRegistry" | default .registry }}{{ . }}/{{ end -}}
{{- .repository -}}
{{- with .digest }}@{{ . }}{{ else }}:{{ .tag | default $root.Chart.AppVersion }}{{ end -}}
{{- end -}}
{{- end -}}

{{/* A container with the environment of a worker: a list of the root and of what is its own (image, envFrom, env, volumeMounts). */}}
{{- define "log-partitioner.container" -}}
{{- $own := last . -}}
{{- with first . -}}
image: {{ include "log-partitioner.image" (list . $own.image) | quote }}
imagePullPolicy: {{ $own.image.pullPolicy }}
envFrom:
  - configMapRef:
      name: {{ include "log-partitioner.fullname" . }}
  {{- with $own.envFrom }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
  {{- if and .Values.secret.name (eq .Values.secret.as "env") }}
  - secretRef:
      name: {{ .Values.secret.name }}
  {{- end }}
  {{- with .Values.extraEnvFrom }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
env:
  {{- toYaml $own.env | nindent 2 }}
  {{- if and .Values.secret.name (eq .Values.secret.as "files") }}
  - name: LOGP_SECRETS_DIR
    value: /etc/log-partitioner/secrets
  {{- end }}
  {{- with .Values.extraEnv }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
securityContext: {{- toYaml .Values.securityContext | nindent 2 }}
volumeMounts:
  {{- toYaml $own.volumeMounts | nindent 2 }}
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
{{- end -}}

{{/* A worker's container, or one of the same image that runs another command. */}}
{{- define "log-partitioner.workerContainer" -}}
{{- /* Part of the transactional id: a restarted pod fences what its predecessor left open. */ -}}
{{- $name := dict "name" "LOGP_WORKER" "valueFrom" (dict "fieldRef" (dict "fieldPath" "metadata.name")) -}}
{{- $spool := dict "name" "spool" "mountPath" .Values.config.spool.directory -}}
{{- include "log-partitioner.container" (list . (dict "image" .Values.image "env" (list $name) "volumeMounts" (list $spool))) -}}
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
{{- $volume := dict "name" "files" "configMap" (dict "name" (include "log-partitioner.named" (list . "-files"))) -}}
{{- $mounted = append $mounted (dict "path" "/etc/log-partitioner/files" "volume" $volume) -}}
{{- end -}}
{{- toJson $mounted -}}
{{- end -}}

{{/* A list of the root, the account, and the values of where the pod goes. */}}
{{- define "log-partitioner.pod" -}}
{{- $account := index . 1 -}}
{{- $placement := last . -}}
{{- with first . -}}
serviceAccountName: {{ $account }}
# A Service named `logp` would put LOGP_SERVICE_HOST into the pod, which the worker refuses as no setting.
enableServiceLinks: false
securityContext: {{- toYaml .Values.podSecurityContext | nindent 2 }}
{{- with concat .Values.imagePullSecrets (get (.Values.global | default dict) "imagePullSecrets" | default list) }}
imagePullSecrets: {{- toYaml . | nindent 2 }}
{{- end }}
{{- $all := pick .Values "runtimeClassName" "schedulerName" "hostAliases" "dnsPolicy" "dnsConfig" }}
{{- range $key, $value := merge $all (pick $placement "nodeSelector" "tolerations" "affinity" "priorityClassName") }}
{{- with $value }}
{{ $key }}: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end -}}
{{- end -}}

{{- define "log-partitioner.workerPod" -}}
{{- include "log-partitioner.pod" (list . (include "log-partitioner.serviceAccountName" .) .Values) }}
automountServiceAccountToken: false
{{- end -}}

{{/* The volumes that all pods have: a list of the root and the size of /tmp, in which the compiler of Protobuf schemas has
a few files at once, and Java the libraries that it unpacks. */}}
{{- define "log-partitioner.volumes" -}}
- name: tmp
  emptyDir:
    sizeLimit: {{ last . }}
{{- with first . -}}
{{- range include "log-partitioner.mounted" . | fromJsonArray }}
- {{- toYaml .volume | nindent 2 }}
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
{{- end -}}
