{{/* A text of manifests/base with the namespaces of this installation. */}}
{{- define "sluice.placed" -}}
{{- /* By way of a mark: the namespace of Sluice may have the name that is replaced next. */ -}}
{{- .text | replace "tkg-system" "\x00" | replace "sluice-system" .root.Release.Namespace | replace "\x00" .root.Values.systemNamespace -}}
{{- end }}

{{- define "sluice.image" -}}
{{- $image := .Values.image -}}
{{- if $image.digest -}}
{{ $image.repository }}@{{ $image.digest }}
{{- else -}}
{{ $image.repository }}:{{ $image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end }}

{{/* Which namespaces Cluster API asks about. */}}
{{- define "sluice.namespaceSelector" -}}
{{- with .Values.extensionConfig -}}
{{- if .namespaces -}}
matchExpressions:
  - key: kubernetes.io/metadata.name
    operator: In
    values: {{- toYaml .namespaces | nindent 6 }}
{{- else -}}
{{ toYaml .namespaceSelector }}
{{- end -}}
{{- end -}}
{{- end }}
