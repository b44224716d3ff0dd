{{- define "raybus.provisionerAccount" -}}
{{ .Values.provisioner.serviceAccount.name | default (printf "%s-provisioner" (include "raybus.fullname" .)) }}
{{- end -}}

{{/* The pod of the provisioner's Job; takes (list root service-account). */}}
{{- define "raybus.provisionerPod" -}}
{{- $root := first . -}}
restartPolicy: OnFailure
serviceAccountName: {{ last . }}
automountServiceAccountToken: true
enableServiceLinks: false
{{- with $root.Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
securityContext: {{ toYaml $root.Values.podSecurityContext | nindent 2 }}
{{- with include "raybus.placement" (list $root "provisioner" (omit $root.Values.serviceDefaults "topologySpreadConstraints")) | trim }}{{ . | nindent 0 }}{{ end }}
containers:
  - name: provisioner
    image: {{ include "raybus.image" (list $root.Values.image $root.Chart.AppVersion) | quote }}
    imagePullPolicy: {{ $root.Values.image.pullPolicy }}
    command: [raybus, provision]
    terminationMessagePolicy: FallbackToLogsOnError
    env:
      {{- include "raybus.commonEnv" $root | nindent 6 }}
      {{- include "raybus.natsEnv" (list $root "provisioner" false) | nindent 6 }}
      {{- include "raybus.settingsEnv" (pick $root.Values.settings "partitions" "generation" "historyBytes") | trim | nindent 6 }}
      - name: RAYBUS_STREAM_REPLICAS
        value: {{ include "raybus.streamReplicas" $root | quote }}
      - name: RAYBUS_CRDS
        value: {{ $root.Values.crds.mode }}
      {{- if $root.Values.nats.enabled }}
      - name: RAYBUS_NAMESPACE
        valueFrom: {fieldRef: {fieldPath: metadata.namespace}}
      - name: RAYBUS_PREFIX
        value: {{ include "raybus.natsSecrets" $root }}
      - name: RAYBUS_SERVER_NAMES
        value: {{ include "raybus.natsServerNames" $root | quote }}
      - name: RAYBUS_OWNER
        value: ConfigMap/{{ include "raybus.natsName" $root }}
      {{- end }}
    resources: {{ toYaml $root.Values.provisioner.resources | nindent 6 }}
    securityContext: {{ toYaml $root.Values.securityContext | nindent 6 }}
    volumeMounts:
      - {name: tmp, mountPath: /tmp}
      {{- if and (not $root.Values.nats.enabled) (include "raybus.natsVolume" (list $root "provisioner")) }}
      - {name: nats, mountPath: /etc/raybus/nats, readOnly: true}
      {{- end }}
volumes:
  - name: tmp
    emptyDir: {sizeLimit: 64Mi}
  {{- if not $root.Values.nats.enabled }}
  {{- include "raybus.natsVolume" (list $root "provisioner") | trim | nindent 2 }}
  {{- end }}
{{- end -}}
