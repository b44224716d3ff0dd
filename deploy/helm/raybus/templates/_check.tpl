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
{{- end -}}
