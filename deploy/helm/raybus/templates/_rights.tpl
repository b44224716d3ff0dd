{{/* Component -> who it is and which settings it has, of all that get rights. */}}
{{- define "raybus.subjects" -}}
{{- $all := dict -}}
{{- range $name, $service := include "raybus.services" . | fromYaml -}}
{{- $_ := set $all $name (dict "component" $name "account" $service.account "settings" $service.settings) -}}
{{- end -}}
{{- $_ := set $all "provisioner" (dict "component" "provisioner" "account" (include "raybus.provisionerAccount" .) "settings" (dict "installDefinitions" (ne .Values.crds.mode "skip"))) -}}
{{- toYaml $all -}}
{{- end -}}

{{/* `cluster`: rules of the ClusterRole; `namespaces`: namespace -> rules of its Role. Takes (list root component settings). */}}
{{- define "raybus.rights" -}}
{{- $root := index . 0 -}}{{- $component := index . 1 -}}{{- $settings := index . 2 -}}
{{- $text := $root.Files.Get (printf "files/rights/%s.yaml" $component) -}}
{{- $text = $text | replace "${prefix}" (include "raybus.natsSecrets" $root) | replace "${owner}" (include "raybus.natsName" $root) -}}
{{- $file := fromYaml $text -}}
{{- $cluster := $file.cluster -}}
{{- $looked := $file.namespaced -}}
{{- range $setting, $rules := $file.settings -}}
{{- if index $settings $setting -}}{{- $looked = concat $looked $rules -}}{{- end -}}
{{- end -}}
{{- range $setting, $rules := $file.clusterSettings -}}
{{- if index $settings $setting -}}{{- $cluster = concat $cluster $rules -}}{{- end -}}
{{- end -}}
{{- $namespaces := dict -}}
{{- if not $root.Values.watchNamespace -}}
{{- $cluster = concat $cluster $looked -}}
{{- else if $looked -}}
{{- range $root.Values.watchNamespace -}}{{- $_ := set $namespaces . $looked -}}{{- end -}}
{{- end -}}
{{- if and $file.release $root.Values.nats.enabled -}}
{{- $_ := set $namespaces $root.Release.Namespace (concat (index $namespaces $root.Release.Namespace | default list) $file.release) -}}
{{- end -}}
{{- dict "cluster" $cluster "namespaces" $namespaces | toYaml -}}
{{- end -}}
