{{/* Names and labels. */}}

{{- define "raybus.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "raybus.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains (include "raybus.name" .) .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name (include "raybus.name" .) | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{/* Cluster-wide objects have no namespace to tell two releases apart: their names hold it. */}}
{{- define "raybus.clusterwide" -}}
{{- printf "%s:%s" .Release.Namespace (include "raybus.fullname" .) -}}
{{- end -}}

{{- define "raybus.release" -}}
app.kubernetes.io/name: {{ include "raybus.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end -}}

{{/* What selects the pods of one component; takes (list root component). Never changes: selectors are immutable. */}}
{{- define "raybus.selector" -}}
{{ include "raybus.release" (first .) }}
app.kubernetes.io/component: {{ last . }}
{{- end -}}

{{/* takes (list root component) */}}
{{- define "raybus.labels" -}}
{{- $root := first . -}}
{{- with $root.Values.labels }}{{ toYaml . }}
{{ end -}}
{{ include "raybus.selector" . }}
app.kubernetes.io/part-of: raybus
app.kubernetes.io/version: {{ $root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ $root.Release.Service }}
{{- end -}}

{{/* takes (list image default-tag) */}}
{{- define "raybus.image" -}}
{{- $image := first . -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default (last .) }}
{{- end -}}
{{- end -}}
