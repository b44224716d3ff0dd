{{/* What files/components.yaml and the values say of each service. */}}

{{/* Name -> everything about it: the facts of files/components.yaml under `is`, the values under `values`, `serviceAccount`, `env`. */}}
{{- define "raybus.services" -}}
{{- $root := . -}}
{{- $file := .Files.Get "files/components.yaml" | fromYaml -}}
{{- range $name, $_ := .Values.services -}}
{{- if not (hasKey $file.components $name) -}}
{{- fail (printf "services.%s: there is no such service; there are: %s" $name (keys $file.components | sortAlpha | join ", ")) -}}
{{- end -}}
{{- end -}}
{{- $all := dict -}}
{{- range $name, $is := $file.components -}}
{{- $own := index $root.Values.services $name | default dict -}}
{{- $values := deepCopy $root.Values.serviceDefaults -}}
{{- range $key, $value := $own -}}
{{- if not (kindIs "invalid" $value) -}}{{- $_ := set $values $key $value -}}{{- end -}}
{{- end -}}
{{- $account := $own.serviceAccount | default dict -}}
{{- $known := concat $file.everyService $is.settings -}}
{{- if $is.controller -}}{{- $known = concat $known $file.everyController -}}{{- end -}}
{{- $settings := dict -}}
{{- range $key := $known -}}{{- $_ := set $settings $key (index $root.Values.settings $key) -}}{{- end -}}
{{- range $key, $value := $own.settings -}}
{{- if not (has $key $known) -}}
{{- fail (printf "services.%s.settings.%s: this service has no such setting; it has: %s" $name $key ($known | sortAlpha | join ", ")) -}}
{{- end -}}
{{- $_ := set $settings $key $value -}}
{{- end -}}
{{- $_ := set $all $name (dict
  "is" $is
  "values" $values
  "settings" $settings
  "image" (merge (deepCopy ($own.image | default dict)) (deepCopy $root.Values.image))
  "account" ($account.name | default (printf "%s-%s" (include "raybus.fullname" $root) $name))
  "accountAnnotations" (merge (deepCopy ($account.annotations | default dict)) $root.Values.serviceAccount.annotations)
) -}}
{{- end -}}
{{- toYaml $all -}}
{{- end -}}

{{/* A value as the text of an environment variable: Helm reads whole numbers as floats. */}}
{{- define "raybus.text" -}}
{{- if and (kindIs "float64" .) (eq (floor .) .) -}}{{ printf "%.0f" . }}{{- else -}}{{ toString . }}{{- end -}}
{{- end -}}

{{/* Settings as RAYBUS_* variables; takes a map. What is null is not set. */}}
{{- define "raybus.settingsEnv" -}}
{{- range $key, $value := . -}}
{{- if not (kindIs "invalid" $value) }}
- name: RAYBUS_{{ $key | snakecase | upper }}
  value: {{ include "raybus.text" $value | quote }}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "raybus.gates" -}}
{{- $pairs := list -}}
{{- range .Values.featureGates -}}{{- $pairs = append $pairs (printf "%s=%t" .name .enabled) -}}{{- end -}}
{{- $pairs | join "," -}}
{{- end -}}

{{/* Variables that every process of the release has. */}}
{{- define "raybus.commonEnv" -}}
- name: RAYBUS_LOG_FORMAT
  value: {{ .Values.logging.stdoutEncoder | quote }}
- name: RAYBUS_LOG_LEVEL
  value: {{ .Values.logging.level | quote }}
{{- with .Values.watchNamespace }}
- name: RAYBUS_NAMESPACES
  value: {{ join "," . | quote }}
{{- end }}
{{- end -}}

{{/* All variables of a service; of those with one name the last counts, so that the values `env` win. Takes (list root name service). */}}
{{- define "raybus.serviceEnv" -}}
{{- $root := index . 0 -}}{{- $service := index . 2 -}}
{{- $given := concat (include "raybus.ownEnv" . | fromYamlArray) $root.Values.env ($service.values.env | default list) -}}
{{- $last := dict -}}
{{- range $given -}}{{- $_ := set $last .name . -}}{{- end -}}
{{- range $given | reverse | uniq | reverse }}
{{- if eq (toJson .) (index $last .name | toJson) }}
- {{ toYaml . | nindent 2 | trim }}
{{- end }}
{{- end -}}
{{- end -}}

{{- define "raybus.ownEnv" -}}
{{- $root := index . 0 -}}{{- $service := index . 2 -}}
- name: RAYBUS_HEALTH_HOST
  value: 0.0.0.0
- name: RAYBUS_HEALTH_PORT
  value: "8080"
{{ include "raybus.commonEnv" $root }}
{{- with include "raybus.gates" $root }}
- name: RAYBUS_FEATURE_GATES
  value: {{ . | quote }}
{{- end }}
{{ include "raybus.natsEnv" (list $root $service.is.natsUser true) }}
{{ include "raybus.settingsEnv" $service.settings | trim }}
{{- if eq (index . 1) "gateway" }}
- name: RAYBUS_STREAM_REPLICAS
  value: {{ include "raybus.streamReplicas" $root | quote }}
{{- end }}
{{- end -}}

{{/* Placement of a pod; takes (list root component values). */}}
{{- define "raybus.placement" -}}
{{- $root := index . 0 -}}{{- $component := index . 1 -}}{{- $values := index . 2 -}}
{{- with $values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with $values.nodeSelector }}
nodeSelector: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $values.affinity }}
affinity: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $values.tolerations }}
tolerations: {{ toYaml . | nindent 2 }}
{{- end }}
{{- with $values.topologySpreadConstraints }}
topologySpreadConstraints:
{{- range . }}
  - {{ toYaml . | nindent 4 | trim }}
    {{- if not .labelSelector }}
    labelSelector:
      matchLabels: {{ include "raybus.selector" (list $root $component) | nindent 8 }}
    {{- end }}
{{- end }}
{{- end }}
{{- end -}}
