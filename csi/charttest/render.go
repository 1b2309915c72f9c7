// SPDX-License-Identifier: MIT OR Apache-2.0

package charttest

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
)

// Documents renders the chart at a path, as `helm template` does, and returns the documents by the names of their files. Each file
// may have several, and some are empty.
func Documents(chart, release, namespace, values string) (map[string][]string, error) {
	loaded, err := loader.Load(chart)
	if err != nil {
		return nil, err
	}
	given, err := chartutil.ReadValues([]byte(values))
	if err != nil {
		return nil, err
	}
	options := chartutil.ReleaseOptions{Name: release, Namespace: namespace, IsInstall: true}
	all, err := chartutil.ToRenderValues(loaded, given, options, chartutil.DefaultCapabilities)
	if err != nil {
		return nil, err
	}
	files, err := engine.Render(loaded, all)
	if err != nil {
		return nil, err
	}
	documents := map[string][]string{}
	for name, text := range files {
		documents[name] = strings.Split(text, "\n---")
	}
	return documents, nil
}

// All renders the chart with its custom resource definitions first, as one stream of documents.
func All(chart, release, namespace, values string) (string, error) {
	loaded, err := loader.Load(chart)
	if err != nil {
		return "", err
	}
	documents, err := Documents(chart, release, namespace, values)
	if err != nil {
		return "", err
	}
	var text strings.Builder
	for _, definition := range loaded.CRDObjects() {
		fmt.Fprintf(&text, "---\n%s\n", definition.File.Data)
	}
	for _, name := range slices.Sorted(maps.Keys(documents)) {
		for _, document := range documents[name] {
			fmt.Fprintf(&text, "---\n%s\n", document)
		}
	}
	return text.String(), nil
}
