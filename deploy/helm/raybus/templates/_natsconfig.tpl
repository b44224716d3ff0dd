{{/* The servers' configuration. Keys of users come from the environment, so that the file holds no secret. */}}
{{- define "raybus.natsConfig" -}}
{{- $root := . -}}
server_name: $POD_NAME
listen: 0.0.0.0:4222
http: 0.0.0.0:8222
pid_file: /run/nats/nats.pid
max_payload: {{ .Values.nats.maxPayload }}
lame_duck_grace_period: "{{ .Values.nats.lameDuckGraceS | int }}s"
lame_duck_duration: "30s"
tls {
  cert_file: /etc/nats-tls/tls.crt
  key_file: /etc/nats-tls/tls.key
  ca_file: /etc/nats-tls/ca.crt
}
jetstream {
  store_dir: /data
  max_memory_store: {{ .Values.nats.jetstream.maxMemoryStore }}
  max_file_store: {{ .Values.nats.jetstream.maxFileStore }}
  sync_interval: {{ .Values.nats.jetstream.syncInterval | quote }}
}
{{- if gt (int .Values.nats.replicas) 1 }}
cluster {
  name: {{ include "raybus.natsName" . }}
  listen: 0.0.0.0:6222
  no_advertise: true
  routes: [
    {{- range $i := until (int .Values.nats.replicas) }}
    nats-route://{{ include "raybus.natsServer" (list $root $i) }}:6222
    {{- end }}
  ]
  tls {
    cert_file: /etc/nats-tls/tls.crt
    key_file: /etc/nats-tls/tls.key
    ca_file: /etc/nats-tls/ca.crt
    verify: true
  }
}
{{- end }}
include accounts.conf
{{ end -}}

{{/* Four fifths of a quantity in Mi or Gi, for GOMEMLIMIT; empty for any other. */}}
{{- define "raybus.fourFifths" -}}
{{- if regexMatch "^[0-9]+[MG]i$" (toString .) -}}
{{- $number := regexFind "^[0-9]+" . | int64 -}}
{{- if hasSuffix "Gi" . -}}{{- $number = mul $number 1024 -}}{{- end -}}
{{ div (mul $number 4) 5 }}MiB
{{- end -}}
{{- end -}}
