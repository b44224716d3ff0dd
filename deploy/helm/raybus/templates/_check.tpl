{{/* What the schema cannot say: values that contradict each other. */}}
{{- define "raybus.check" -}}
{{- if and .Values.nats.enabled .Values.externalNats.url -}}
{{- fail "externalNats.url: set nats.enabled to false to use an existing NATS, or leave this value empty" -}}
{{- end -}}
{{- if and (not .Values.nats.enabled) .Values.externalNats.url -}}
{{- range $user := include "raybus.natsUsed" . | splitList "," -}}
{{- if not (include "raybus.externalSecret" (list $ $user)) -}}
{{- fail (printf "externalNats.credentials.secret: name the Secret with the credentials, or give one for this user in externalNats.credentials.perUser.%s" $user) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $name, $service := include "raybus.services" . | fromYaml -}}
{{- if le (float64 $service.values.terminationGracePeriodSeconds) (float64 $service.settings.drainS) -}}
{{- fail (printf "services.%s.terminationGracePeriodSeconds: must be more than settings.drainS (%v), in which running passes end" $name $service.settings.drainS) -}}
{{- end -}}
{{- end -}}
{{- include "raybus.checkStorage" . -}}
{{- end -}}

{{/* Streams fit into the files of NATS, and the files on the volume: NATS finds out when it is too late. */}}
{{- define "raybus.checkStorage" -}}
{{- if .Values.nats.enabled -}}
{{- $files := .Values.nats.jetstream.maxFileStore -}}
{{- if lt (float64 (include "raybus.bytes" .Values.nats.persistence.size)) (float64 (include "raybus.natsBytes" $files)) -}}
{{- fail (printf "nats.jetstream.maxFileStore: %v is more than the volume holds, which is nats.persistence.size (%v)" $files .Values.nats.persistence.size) -}}
{{- end -}}
{{- if lt (float64 (include "raybus.natsBytes" $files)) (float64 .Values.settings.historyBytes) -}}
{{- fail (printf "settings.historyBytes: %d is more than NATS may keep, which is nats.jetstream.maxFileStore (%v)" (int64 .Values.settings.historyBytes) $files) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* Bytes of a quantity of Kubernetes. */}}
{{- define "raybus.bytes" -}}
{{- $unit := regexReplaceAll "^[0-9.]+" (toString .) "" -}}
{{- $factors := dict "" 1.0 "m" 0.001 "k" 1e3 "M" 1e6 "G" 1e9 "T" 1e12 "P" 1e15 "Ki" 1024.0 "Mi" 1048576.0 "Gi" 1073741824.0 "Ti" 1099511627776.0 "Pi" 1125899906842624.0 -}}
{{- mulf (float64 (regexFind "^[0-9.]+" (toString .))) (index $factors $unit) -}}
{{- end -}}

{{/* Bytes of a size as NATS reads it: KB is 1024. */}}
{{- define "raybus.natsBytes" -}}
{{- $unit := regexReplaceAll "^[0-9]+" (toString .) "" -}}
{{- $factors := dict "" 1.0 "KB" 1024.0 "MB" 1048576.0 "GB" 1073741824.0 "TB" 1099511627776.0 -}}
{{- mulf (float64 (regexFind "^[0-9]+" (toString .))) (index $factors $unit) -}}
{{- end -}}
