{{/* How to reach NATS, inside or existing. */}}

{{- define "raybus.natsName" -}}{{ include "raybus.fullname" . }}-nats{{- end -}}

{{/* The StatefulSet. One server and three are different sets: rolled out one after the other, the new servers would wait for the old one to join
     them, and it for them to be ready. */}}
{{- define "raybus.natsSet" -}}{{ include "raybus.natsName" . }}{{ if gt (int .Values.nats.replicas) 1 }}-r3{{ end }}{{- end -}}

{{- define "raybus.natsSecrets" -}}{{ .Values.nats.secretsPrefix | default (include "raybus.natsName" .) }}{{- end -}}

{{/* Address of one server, by its number; takes (list root number). */}}
{{- define "raybus.natsServer" -}}
{{- $root := first . -}}
{{ include "raybus.natsSet" $root }}-{{ last . }}.{{ include "raybus.natsName" $root }}-headless.{{ $root.Release.Namespace }}.svc
{{- end -}}

{{- define "raybus.natsUrl" -}}
{{- $root := . -}}
{{- if not .Values.nats.enabled -}}
{{- required "externalNats.url: give the address of the existing NATS, or set nats.enabled" .Values.externalNats.url -}}
{{- else if eq (int .Values.nats.replicas) 1 -}}
tls://{{ include "raybus.natsName" . }}.{{ .Release.Namespace }}.svc:4222
{{- else -}}
{{- $urls := list -}}
{{- range $i := until (int .Values.nats.replicas) -}}{{- $urls = append $urls (printf "tls://%s:4222" (include "raybus.natsServer" (list $root $i))) -}}{{- end -}}
{{- $urls | join "," -}}
{{- end -}}
{{- end -}}

{{/* All users of NATS that the servers' configuration names, separated by commas. */}}
{{- define "raybus.natsUsers" -}}
{{- $users := list -}}
{{- range regexFindAll "\\$[A-Z0-9_]+_NKEY" (.Files.Get "files/nats/accounts.conf") -1 | uniq | sortAlpha -}}
{{- $users = append $users (. | trimPrefix "$" | trimSuffix "_NKEY" | lower) -}}
{{- end -}}
{{- $users | join "," -}}
{{- end -}}

{{/* The users that connect from this release, separated by commas. */}}
{{- define "raybus.natsUsed" -}}
{{- $users := list "provisioner" -}}
{{- range (.Files.Get "files/components.yaml" | fromYaml).components -}}{{- $users = append $users .natsUser -}}{{- end -}}
{{- $users | join "," -}}
{{- end -}}

{{/* Names in the servers' certificate, separated by commas; localhost is for a forwarded port. */}}
{{- define "raybus.natsServerNames" -}}
{{- $nats := include "raybus.natsName" . -}}{{- $namespace := .Release.Namespace -}}{{- $domain := .Values.settings.clusterDomain -}}
{{- list $nats
  (printf "%s.%s" $nats $namespace)
  (printf "%s.%s.svc" $nats $namespace)
  (printf "%s.%s.svc.%s" $nats $namespace $domain)
  (printf "*.%s-headless.%s.svc" $nats $namespace)
  (printf "*.%s-headless.%s.svc.%s" $nats $namespace $domain)
  "localhost"
  | join "," -}}
{{- end -}}

{{/* The Secret with the credentials for an existing NATS; takes (list root user). */}}
{{- define "raybus.externalSecret" -}}
{{- $credentials := (first .).Values.externalNats.credentials -}}
{{- index $credentials.perUser (last .) | default $credentials.secret -}}
{{- end -}}

{{/* Variables with which a user connects; takes (list root user mounted?). */}}
{{- define "raybus.natsEnv" -}}
{{- $root := index . 0 -}}{{- $user := index . 1 -}}{{- $external := $root.Values.externalNats -}}
- name: RAYBUS_NATS_URL
  value: {{ include "raybus.natsUrl" $root | quote }}
{{- if $root.Values.nats.enabled }}
- name: RAYBUS_NATS_INBOX_PREFIX
  value: _INBOX_{{ $user }}
{{- if index . 2 }}
- name: RAYBUS_NATS_NKEY_FILE
  value: /etc/raybus/nats/seed
- name: RAYBUS_NATS_CA_FILE
  value: /etc/raybus/nats/ca.crt
{{- end }}
{{- else }}
- name: RAYBUS_NATS_INBOX_PREFIX
  value: {{ $external.inboxPrefix | default (printf "_INBOX_%s" $user) | quote }}
{{- if include "raybus.externalSecret" (list $root $user) }}
- name: {{ eq $external.credentials.type "nkey" | ternary "RAYBUS_NATS_NKEY_FILE" "RAYBUS_NATS_CREDENTIALS_FILE" }}
  value: /etc/raybus/nats/credentials
{{- end }}
{{- if $external.ca.secret }}
- name: RAYBUS_NATS_CA_FILE
  value: /etc/raybus/nats/ca.crt
{{- end }}
{{- end }}
{{- end -}}

{{/* The volume behind these paths; takes (list root user). Empty if there is nothing to mount. */}}
{{- define "raybus.natsVolume" -}}
{{- $root := first . -}}{{- $user := last . -}}{{- $external := $root.Values.externalNats -}}
{{- if $root.Values.nats.enabled }}
- name: nats
  secret:
    secretName: {{ include "raybus.natsSecrets" $root }}-{{ $user }}
    defaultMode: 0440
{{- else if or (include "raybus.externalSecret" .) $external.ca.secret }}
- name: nats
  projected:
    defaultMode: 0440
    sources:
      {{- with include "raybus.externalSecret" . }}
      - secret:
          name: {{ . }}
          items: [{key: {{ $external.credentials.key | quote }}, path: credentials}]
      {{- end }}
      {{- with $external.ca.secret }}
      - secret:
          name: {{ . }}
          items: [{key: {{ $external.ca.key | quote }}, path: ca.crt}]
      {{- end }}
{{- end }}
{{- end -}}

{{/* Copies of each stream: one per server inside; of an existing NATS, what the values say. */}}
{{- define "raybus.streamReplicas" -}}
{{- .Values.nats.enabled | ternary .Values.nats.replicas .Values.externalNats.streamReplicas -}}
{{- end -}}
