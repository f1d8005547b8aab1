{{/* A file below files/. Its line ends are those of Unix also in a checkout of Windows, because templates search for them. */}}
{{- define "sluice.file" -}}
{{- $text := .root.Files.Get (printf "files/%s" .path) | replace "\r\n" "\n" -}}
{{- if not $text -}}
{{- fail (printf "file files/%s is missing in the chart, and Helm would install only a part of Sluice; use the complete directory manifests/chart, or an archive of helm package" .path) -}}
{{- end -}}
{{- $text -}}
{{- end }}

{{/* Replaces the namespaces in a file of manifests/base. */}}
{{- define "sluice.placed" -}}
{{- /* A placeholder, because the release namespace may contain tkg-system. */ -}}
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

{{/* Host of a listen address, with brackets around IPv6; empty for all addresses. */}}
{{- define "sluice.listenHost" -}}
{{- $address := .Values.listenAddress | default "" -}}
{{- if contains ":" $address -}}
[{{ $address }}]
{{- else -}}
{{ $address }}
{{- end -}}
{{- end }}

{{/* Namespaces for which Cluster API calls Sluice. */}}
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
