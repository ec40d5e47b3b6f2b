{{/* Settings of the jobs, with those that follow from the release: no two releases of a bucket share files of tables, or
one would remove the other's as orphans. */}}
{{- define "log-partitioner.pipeline.config" -}}
{{- $bucket := (include "log-partitioner.config" . | fromJson).s3.bucket -}}
{{- $identity := include "log-partitioner.identity" . -}}
{{- $catalog := dict "warehouse" (printf "s3://%s/_tables/%s" $bucket $identity) -}}
{{- $audit := dict "results_prefix" (printf "_audits/%s" $identity) -}}
{{- if .Values.pipeline.catalogClaim -}}
{{- $_ := set $catalog "uri" "/var/lib/log-partitioner/catalog.db" -}}
{{- end -}}
{{- mergeOverwrite (dict "catalog" $catalog "audit" $audit) (deepCopy .Values.pipeline.config) | toJson -}}
{{- end -}}

{{/* The jobs that are rendered, each with its values and: name, section of its settings, arguments, and more of them for
one that goes on. The last is a template for any other job: it never runs by itself. */}}
{{- define "log-partitioner.pipeline.jobs" -}}
{{- $forms := dict
  "table" (dict "section" "materialize" "first" (list "materialize") "on" (list "--continuous"))
  "audit" (dict "section" "audit" "first" (list "audit") "on" (list "--every" .Values.pipeline.audit.every))
  "compact" (dict "section" "compact" "first" (list "compact") "as" "CronJob")
  "userActivity" (dict "section" "activity" "first" (list "user-activity") "on" (list "--continuous"))
-}}
{{- $jobs := list -}}
{{- range $key, $form := $forms -}}
{{- $values := get $.Values.pipeline $key -}}
{{- if $values.enabled -}}
{{- $job := merge (dict "name" (kebabcase $key)) $form (deepCopy $values) -}}
{{- $on := ternary $form.on list (eq $job.as "Deployment") -}}
{{- $jobs = append $jobs (set $job "args" (concat $form.first $on $values.args)) -}}
{{- end -}}
{{- end -}}
{{- $any := dict "name" "job" "section" "" "as" "CronJob" "args" (list "--help") "schedule" "0 0 31 2 *" "suspend" true "config" dict "resources" dict -}}
{{- append $jobs $any | toJson -}}
{{- end -}}

{{- define "log-partitioner.pipeline.selectorLabels" -}}
app.kubernetes.io/name: {{ .Values.nameOverride | default .Chart.Name }}-pipeline
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* Metadata of an object of the pipeline: a list of the root and of what is its own. */}}
{{- define "log-partitioner.pipeline.metadata" -}}
{{- $own := merge (deepCopy (last .)) (dict "suffix" "-pipeline" "labels" dict) -}}
{{- $_ := set $own "labels" (mergeOverwrite $own.labels (include "log-partitioner.pipeline.selectorLabels" (first .) | fromYaml)) -}}
{{- include "log-partitioner.metadata" (list (first .) $own) -}}
{{- end -}}

{{- define "log-partitioner.pipeline.serviceAccountName" -}}
{{- with .Values.pipeline.serviceAccount -}}
{{- .name | default (ternary (include "log-partitioner.named" (list $ "-pipeline")) "default" .create) -}}
{{- end -}}
{{- end -}}

{{/* The volumes of a driver or executor. Spark takes a volume whose name begins like that as its scratch space. */}}
{{- define "log-partitioner.pipeline.volumes" -}}
- name: spark-local-dir-1
  emptyDir:
    sizeLimit: {{ .Values.pipeline.scratchSize }}
{{ include "log-partitioner.volumes" (list . "1Gi") }}
{{- end -}}

{{/* Settings of Spark for a driver in a pod: executors find it by the pod's address, and go when it goes. Services and
claims, for which it has no rights, it need not look for. */}}
{{- define "log-partitioner.pipeline.executors" -}}
{{- with .Values.pipeline.executors -}}
{{- $properties := dict
  "spark.driver.host" "$(POD_IP)"
  "spark.kubernetes.driver.pod.name" "$(POD_NAME)"
  "spark.kubernetes.namespace" $.Release.Namespace
  "spark.kubernetes.container.image" (include "log-partitioner.image" (list $ $.Values.pipeline.image))
  "spark.kubernetes.container.image.pullPolicy" $.Values.pipeline.image.pullPolicy
  "spark.kubernetes.executor.podTemplateFile" "/etc/log-partitioner/executor/pod.yaml"
  "spark.kubernetes.driver.service.deleteOnTermination" "false"
  "spark.kubernetes.driver.ownPersistentVolumeClaim" "false"
  "spark.kubernetes.driver.reusePersistentVolumeClaim" "false"
  "spark.executor.instances" (toString .instances)
  "spark.executor.cores" (toString .cores)
  "spark.executor.memory" .memory
  "spark.executor.memoryOverhead" .memoryOverhead
-}}
{{- dict "master" "k8s://https://kubernetes.default.svc" "properties" $properties | toJson -}}
{{- end -}}
{{- end -}}

{{/* The pod of a job: a list of the root and the job. */}}
{{- define "log-partitioner.pipeline.pod" -}}
{{- $job := last . -}}
{{- with first . -}}
{{- $pipeline := .Values.pipeline -}}
{{- $env := list (dict "name" "SPARK_LOCAL_DIRS" "value" "/work") -}}
{{- $mounts := list (dict "name" "spark-local-dir-1" "mountPath" "/work") -}}
{{- $own := deepCopy $job.config -}}
{{- if and .Values.secret.name (eq .Values.secret.as "files") -}}
{{- $env = append $env (dict "name" "PIPELINE_SECRETS_DIR" "value" "/etc/log-partitioner/secrets") -}}
{{- end -}}
{{- if $pipeline.executors.enabled -}}
{{- range $name, $field := dict "POD_IP" "status.podIP" "POD_NAME" "metadata.name" -}}
{{- $env = append $env (dict "name" $name "valueFrom" (dict "fieldRef" (dict "fieldPath" $field))) -}}
{{- end -}}
{{- $mounts = append $mounts (dict "name" "executor" "mountPath" "/etc/log-partitioner/executor" "readOnly" true) -}}
{{- $config := mergeOverwrite (include "log-partitioner.pipeline.config" . | fromJson) $own -}}
{{- $properties := (get $config "spark" | default dict).properties | default dict -}}
{{- $spark := include "log-partitioner.pipeline.executors" . | fromJson -}}
{{- $_ := set $spark "properties" (merge $properties $spark.properties) -}}
{{- $own = mergeOverwrite $own (dict "spark" $spark) -}}
{{- end -}}
{{- range $name, $value := include "log-partitioner.variables" (list "PIPELINE" $own) | fromYaml -}}
{{- $env = append $env (dict "name" $name "value" $value) -}}
{{- end -}}
{{- if $pipeline.catalogClaim -}}
{{- $mounts = append $mounts (dict "name" "catalog" "mountPath" "/var/lib/log-partitioner") -}}
{{- end -}}
{{- $settings := list (dict "configMapRef" (dict "name" (include "log-partitioner.named" (list . "-pipeline")))) -}}
{{- $port := include "log-partitioner.pipeline.port" (list . $job) -}}
{{- include "log-partitioner.pod" (list . (include "log-partitioner.pipeline.serviceAccountName" .) $pipeline) }}
# A driver asks the API server for its executors.
automountServiceAccountToken: {{ $pipeline.executors.enabled }}
restartPolicy: {{ ternary "Always" "Never" (eq $job.as "Deployment") }}
containers:
  - name: {{ $job.name }}
    args: {{- toYaml $job.args | nindent 6 }}
    {{- include "log-partitioner.container" (list . (dict "image" $pipeline.image "envFrom" $settings "env" (concat $env $pipeline.extraEnv) "volumeMounts" $mounts)) | nindent 4 }}
    {{- if $port }}
    ports:
      - name: metrics
        containerPort: {{ $port }}
    {{- with $pipeline.livenessProbe }}
    livenessProbe: {{- merge (dict "httpGet" (dict "path" "/metrics" "port" "metrics")) . | toYaml | nindent 6 }}
    {{- end }}
    {{- end }}
    resources: {{- $job.resources | default $pipeline.resources | toYaml | nindent 6 }}
volumes:
  {{- include "log-partitioner.pipeline.volumes" . | nindent 2 }}
  {{- with $pipeline.catalogClaim }}
  - name: catalog
    persistentVolumeClaim:
      claimName: {{ . }}
  {{- end }}
  {{- if $pipeline.executors.enabled }}
  - name: executor
    configMap:
      name: {{ include "log-partitioner.named" (list . "-executor") }}
  {{- end }}
{{- end -}}
{{- end -}}

{{/* The port of a job's metrics, if it goes on and has some: a list of the root and the job. */}}
{{- define "log-partitioner.pipeline.port" -}}
{{- $job := last . -}}
{{- $config := mergeOverwrite (include "log-partitioner.pipeline.config" (first .) | fromJson) $job.config -}}
{{- if eq $job.as "Deployment" -}}
{{- (get $config $job.section | default dict).metrics_port -}}
{{- end -}}
{{- end -}}

{{- define "log-partitioner.pipeline.podLabels" -}}
{{- mergeOverwrite (dict) .Values.commonLabels .Values.pipeline.podLabels (include "log-partitioner.pipeline.selectorLabels" . | fromYaml) | toYaml -}}
{{- end -}}
