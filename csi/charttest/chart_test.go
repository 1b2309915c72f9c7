// SPDX-License-Identifier: MIT OR Apache-2.0

// Package charttest lints the chart and renders its templates, with Helm's own packages.
//
// It is a module of its own, so that the driver does not depend on Helm.
package charttest

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"sigs.k8s.io/yaml"
)

const path = "../chart"

type object map[string]any

// at is the value at a path of keys and indices.
func at(value any, keys ...any) any {
	for _, key := range keys {
		switch key := key.(type) {
		case string:
			fields, _ := value.(map[string]any)
			if top, is := value.(object); is {
				fields = top
			}
			value = fields[key]
		case int:
			list, _ := value.([]any)
			if key >= len(list) {
				return nil
			}
			value = list[key]
		}
	}
	return value
}

// render renders the chart and returns its objects by kind and name.
func render(t *testing.T, text string) (map[string]object, error) {
	t.Helper()
	documents, err := Documents(path, "lard", "storage", text)
	if err != nil {
		return nil, err
	}
	objects := map[string]object{}
	for _, name := range slices.Sorted(maps.Keys(documents)) {
		for _, document := range documents[name] {
			var found object
			if err := yaml.UnmarshalStrict([]byte(document), &found); err != nil {
				t.Fatalf("%s: %v\n%s", name, err, document)
			}
			if len(found) == 0 {
				continue
			}
			key := at(found, "kind").(string) + "/" + at(found, "metadata", "name").(string)
			if objects[key] != nil {
				t.Errorf("%s: %s is there twice", name, key)
			}
			objects[key] = found
		}
	}
	return objects, nil
}

func TestLint(t *testing.T) {
	for _, values := range []map[string]any{nil, {"storageClasses": []any{map[string]any{
		"name": "cached", "backingStorageClass": "san", "cacheSize": "10%",
	}}}} {
		linter := lint.All(path, values, "storage", true)
		for _, message := range linter.Messages {
			if message.Severity > support.InfoSev {
				t.Errorf("%v", message)
			}
		}
	}
}

func TestTheDriverObjectNeedsNoAttachment(t *testing.T) {
	objects, err := render(t, "{}")
	if err != nil {
		t.Fatal(err)
	}
	driver := objects["CSIDriver/csi.larder.dev"]
	for key, want := range map[string]any{"attachRequired": false, "podInfoOnMount": true, "storageCapacity": true} {
		if got := at(driver, "spec", key); got != want {
			t.Errorf("%s: %v", key, got)
		}
	}
}

func TestTheSocketOfTheNodeIsThatOfTheRegistration(t *testing.T) {
	objects, err := render(t, "kubeletDir: /data/kubelet\nvolumeGroup: nvme\nimageRegistry: mirror.example/\n")
	if err != nil {
		t.Fatal(err)
	}
	pod := at(objects["DaemonSet/lard-node"], "spec", "template", "spec")
	text, err := yaml.Marshal(pod)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"--kubelet-registration-path=/data/kubelet/plugins/csi.larder.dev/csi.sock", "path: /data/kubelet/plugins/csi.larder.dev",
		"--kubelet-dir=/data/kubelet", "--volume-group=nvme", "mountPropagation: Bidirectional", "image: mirror.example/larder-csi:",
	} {
		if !strings.Contains(string(text), want) {
			t.Errorf("%q is missing", want)
		}
	}
	if strings.Contains(string(text), "/var/lib/kubelet") {
		t.Error("the default directory of the kubelet is still named")
	}
}

func TestTheControllerIsRestricted(t *testing.T) {
	objects, err := render(t, "{}")
	if err != nil {
		t.Fatal(err)
	}
	pod := at(objects["Deployment/lard-controller"], "spec", "template", "spec")
	if at(pod, "securityContext", "runAsNonRoot") != true {
		t.Error("it may run as root")
	}
	containers, _ := at(pod, "containers").([]any)
	if len(containers) != 3 {
		t.Fatalf("%d containers", len(containers))
	}
	for _, container := range containers {
		security := at(container, "securityContext")
		if at(security, "allowPrivilegeEscalation") != false || at(security, "readOnlyRootFilesystem") != true ||
			at(security, "capabilities", "drop", 0) != "ALL" {
			t.Errorf("%v: %v", at(container, "name"), security)
		}
	}
}

// allowed lists what a role permits, as group/resource verb.
func allowed(role object) []string {
	var all []string
	rules, _ := at(role, "rules").([]any)
	for _, rule := range rules {
		for _, group := range at(rule, "apiGroups").([]any) {
			for _, resource := range at(rule, "resources").([]any) {
				for _, verb := range at(rule, "verbs").([]any) {
					all = append(all, group.(string)+"/"+resource.(string)+" "+verb.(string))
				}
			}
		}
	}
	slices.Sort(all)
	return all
}

func TestRightsAreMinimal(t *testing.T) {
	objects, err := render(t, "{}")
	if err != nil {
		t.Fatal(err)
	}
	for key, role := range objects {
		if !strings.HasPrefix(key, "Role/") && !strings.HasPrefix(key, "ClusterRole/") {
			continue
		}
		for _, right := range allowed(role) {
			if strings.Contains(right, "*") || strings.Contains(right, "secrets") || strings.Contains(right, "pods/exec") {
				t.Errorf("%s: %s", key, right)
			}
		}
	}
	want := []string{
		"coordination.k8s.io/leases create", "coordination.k8s.io/leases delete", "coordination.k8s.io/leases get",
		"coordination.k8s.io/leases update", "larder.dev/lardervolumes get", "larder.dev/lardervolumes update",
		"larder.dev/lardervolumes/status update",
	}
	if got := allowed(objects["Role/lard-node"]); !slices.Equal(got, want) {
		t.Errorf("rights of the node plugins: %v", got)
	}
	for _, right := range allowed(objects["ClusterRole/lard-controller"]) {
		if strings.HasPrefix(right, "/pods create") || strings.HasPrefix(right, "/pods delete") {
			t.Errorf("the controller may change pods of all namespaces: %s", right)
		}
	}
	if at(objects["ServiceAccount/lard-helper"], "automountServiceAccountToken") != false {
		t.Error("helper pods get a token")
	}
}

func TestAStorageClassHasTheParametersOfTheDriver(t *testing.T) {
	objects, err := render(t, `
storageClasses:
  - {name: cached, backingStorageClass: san, cacheSize: 64Gi, preset: prwc, policy: write-back, writeBudget: 1DWPD, fsType: xfs}
  - {name: small, backingStorageClass: san, cacheSize: 5%}
`)
	if err != nil {
		t.Fatal(err)
	}
	class := objects["StorageClass/cached"]
	for key, want := range map[string]string{
		"backingStorageClass": "san", "cacheSize": "64Gi", "preset": "prwc", "policy": "write-back", "writeBudget": "1DWPD",
		"csi.storage.k8s.io/fstype": "xfs",
	} {
		if got := at(class, "parameters", key); got != want {
			t.Errorf("%s: %v", key, got)
		}
	}
	if at(class, "volumeBindingMode") != "WaitForFirstConsumer" || at(class, "allowVolumeExpansion") != true {
		t.Errorf("%v", class)
	}
	if at(objects["StorageClass/small"], "parameters", "policy") != nil {
		t.Error("a policy that was not given is set")
	}
}

func TestTheCustomResourcesHaveAStatus(t *testing.T) {
	loaded, err := loader.Load(path)
	if err != nil {
		t.Fatal(err)
	}
	scopes := map[string]any{"lardervolumes.larder.dev": "Namespaced", "lardernodes.larder.dev": "Cluster"}
	found := loaded.CRDObjects()
	if len(found) != len(scopes) {
		t.Fatalf("%d custom resources", len(found))
	}
	for _, file := range found {
		var definition object
		if err := yaml.UnmarshalStrict(file.File.Data, &definition); err != nil {
			t.Fatalf("%s: %v", file.Filename, err)
		}
		name := at(definition, "metadata", "name").(string)
		if scopes[name] == nil || at(definition, "spec", "scope") != scopes[name] {
			t.Errorf("%s: scope %v", name, at(definition, "spec", "scope"))
		}
		// Without it a change of the status could change what was asked for.
		if at(definition, "spec", "versions", 0, "subresources", "status") == nil {
			t.Errorf("%s: no status", name)
		}
	}
}

func TestEachPresetHasItsPolicies(t *testing.T) {
	for preset, policies := range map[string]string{
		"larder": "async through around", "prwc": "async through around write-back", "face": "through full ordered bounded",
	} {
		for policy := range strings.FieldsSeq(policies) {
			class := "{name: x, backingStorageClass: san, cacheSize: 1Gi, preset: " + preset + ", policy: " + policy + "}"
			if _, err := render(t, "storageClasses: ["+class+"]"); err != nil {
				t.Errorf("%s, %s: %v", preset, policy, err)
			}
		}
	}
}

func TestWrongValuesAreRefused(t *testing.T) {
	for _, values := range []string{
		"unknown: 1", "kubeletDir: relative", "kubeletDir: /a/../b c", "volumeGroup: '-x'", "server: {image: larder, memory: much}",
		"storageClasses: [{name: x}]", "storageClasses: [{name: x, backingStorageClass: san, cacheSize: 101%}]",
		"storageClasses: [{name: x, backingStorageClass: san, cacheSize: 1Gi, preset: fast}]", "imagePullPolicy: Sometimes",
		"storageClasses: [{name: x, backingStorageClass: x, cacheSize: 1Gi}]",
		"storageClasses: [{name: x, backingStorageClass: san, cacheSize: 1Gi, writeBudget: lots}]",
		"storageClasses: [{name: x, backingStorageClass: san, cacheSize: 1Gi, policy: full}]",
		"storageClasses: [{name: x, backingStorageClass: san, cacheSize: 1Gi, preset: prwc, policy: full}]",
		"storageClasses: [{name: x, backingStorageClass: san, cacheSize: 1Gi, preset: face, policy: write-back}]",
	} {
		if _, err := render(t, values); err == nil {
			t.Errorf("%s: accepted", values)
		}
	}
}

func TestTheBudgetCoversTheHelperPods(t *testing.T) {
	objects, err := render(t, "{}")
	if err != nil {
		t.Fatal(err)
	}
	budget := objects["PodDisruptionBudget/lard-helper"]
	if at(budget, "spec", "selector", "matchLabels", "app.kubernetes.io/component") != "helper" {
		t.Errorf("%v", budget)
	}
}
