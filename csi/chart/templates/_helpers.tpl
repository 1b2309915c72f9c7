{{- /* SPDX-License-Identifier: MIT OR Apache-2.0 */ -}}
{{- define "larder-csi.driver" -}}csi.larder.dev{{- end -}}
{{- define "larder-csi.image" -}}{{ .root.Values.imageRegistry }}{{ .image }}{{- end -}}
{{- define "larder-csi.labels" -}}
app.kubernetes.io/name: larder-csi
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}
{{- define "larder-csi.pullSecrets" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}
