{{- define "raybus.dnsRule" -}}
- ports:
    {{- range .Values.networkPolicy.dnsPorts }}
    - {port: {{ . | int }}, protocol: UDP}
    - {port: {{ . | int }}, protocol: TCP}
    {{- end }}
  {{- with .Values.networkPolicy.dnsTo }}
  to: {{ toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
