// SPDX-License-Identifier: MIT OR Apache-2.0

// Installation of the chart: what it renders is created in the cluster.

package clustertest

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	authentication "k8s.io/api/authentication/v1"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/yaml"

	"larder.dev/csi/internal/store"
)

// Names of the installation.
const (
	namespace = "larder"
	release   = "lard"
	class     = "cached"
	san       = "san"
)

const values = `
storageClasses:
  - {name: cached, backingStorageClass: san, cacheSize: 1Gi}
  - {name: written, backingStorageClass: san, cacheSize: 1Gi, preset: prwc}
`

// render renders the chart. The module of charttest has Helm; the driver does not depend on it.
func render() ([]*unstructured.Unstructured, error) {
	var stdout, stderr bytes.Buffer
	command := exec.Command("go", "run", "./render", "../chart", release, namespace)
	command.Dir, command.Stdin, command.Stdout, command.Stderr = "../../charttest", strings.NewReader(values), &stdout, &stderr
	if err := command.Run(); err != nil {
		return nil, fmt.Errorf("render: %w: %s", err, stderr.String())
	}
	var all []*unstructured.Unstructured
	for _, document := range strings.Split(stdout.String(), "\n---") {
		var fields map[string]any
		if err := yaml.Unmarshal([]byte(strings.TrimPrefix(document, "---")), &fields); err != nil {
			return nil, fmt.Errorf("%w: %s", err, document)
		}
		if len(fields) != 0 {
			all = append(all, &unstructured.Unstructured{Object: fields})
		}
	}
	return all, nil
}

// install creates the namespace as docs/kubernetes.md states, and what the chart renders. It returns the arguments of the
// controller plugin.
func (r *rig) install(ctx context.Context) ([]string, error) {
	label := map[string]string{"pod-security.kubernetes.io/enforce": "privileged"}
	for _, space := range []*core.Namespace{
		{ObjectMeta: metav1.ObjectMeta{Name: namespace, Labels: label}}, {ObjectMeta: metav1.ObjectMeta{Name: work}},
	} {
		if _, err := r.objects.CoreV1().Namespaces().Create(ctx, space, metav1.CreateOptions{}); err != nil {
			return nil, err
		}
	}
	if _, err := r.objects.StorageV1().StorageClasses().Create(ctx, backingClass(), metav1.CreateOptions{}); err != nil {
		return nil, err
	}
	objects, err := render()
	if err != nil {
		return nil, err
	}
	var args []string
	for _, object := range objects {
		if err := r.apply(ctx, object); err != nil {
			return nil, fmt.Errorf("%s %s: %w", object.GetKind(), object.GetName(), err)
		}
		if object.GetKind() == "Deployment" {
			containers, _, _ := unstructured.NestedSlice(object.Object, "spec", "template", "spec", "containers")
			args, _, _ = unstructured.NestedStringSlice(containers[0].(map[string]any), "args")
		}
	}
	return args, nil
}

// apply creates an object. Its kind may be a custom resource that was created a moment ago.
func (r *rig) apply(ctx context.Context, object *unstructured.Unstructured) error {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	for {
		client, err := r.resource(object.GroupVersionKind(), object.GetNamespace())
		if err == nil {
			// Strict, so that a field that Kubernetes does not know is an error.
			_, err = client.Create(ctx, object, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict})
		}
		if err == nil || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(100 * time.Millisecond):
		}
	}
}

func (r *rig) resource(kind schema.GroupVersionKind, namespace string) (dynamic.ResourceInterface, error) {
	groups, err := restmapper.GetAPIGroupResources(discovery.NewDiscoveryClient(r.objects.Discovery().RESTClient()))
	if err != nil {
		return nil, err
	}
	mapping, err := restmapper.NewDiscoveryRESTMapper(groups).RESTMapping(kind.GroupKind(), kind.Version)
	if err != nil {
		return nil, err
	}
	if namespace == "" {
		return r.records.Resource(mapping.Resource), nil
	}
	return r.records.Resource(mapping.Resource).Namespace(namespace), nil
}

// token is one of a service account of the chart, bound to a pod unless it is nil.
func (r *rig) token(ctx context.Context, account string, pod *core.Pod) (string, error) {
	request := &authentication.TokenRequest{Spec: authentication.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(24 * 3600))}}
	if pod != nil {
		request.Spec.BoundObjectRef = &authentication.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID}
	}
	got, err := r.objects.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, release+"-"+account, request, metav1.CreateOptions{})
	if err != nil {
		return "", err
	}
	return got.Status.Token, nil
}

// clientsOf are clients with the rights of the node plugin on a node, whose pod it makes.
func (r *rig) clientsOf(ctx context.Context, node string) (store.Client, store.Leases, error) {
	pod, err := r.objects.CoreV1().Pods(namespace).Create(ctx, &core.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: release + "-node-"},
		Spec: core.PodSpec{
			NodeName: node, ServiceAccountName: release + "-node",
			// As in the chart: the pod of a node that is out of service stays, and with it the token.
			Tolerations: []core.Toleration{{Operator: core.TolerationOpExists}},
			Containers:  []core.Container{{Name: "larder-csi", Image: "larder-csi"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return store.Client{}, store.Leases{}, err
	}
	token, err := r.token(ctx, "node", pod)
	if err != nil {
		return store.Client{}, store.Leases{}, err
	}
	objects, records, err := r.clients(token)
	return store.Client{Dynamic: records, Namespace: namespace}, store.Leases{Kubernetes: objects, Namespace: namespace}, err
}

// build builds the program larder-csi, with the race detector if the test has it.
func build(path string) error {
	args := []string{"build", "-o", path}
	if raced() {
		args = append(args, "-race")
	}
	command := exec.Command("go", append(args, "larder.dev/csi/cmd/larder-csi")...)
	command.Env = os.Environ()
	if text, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("larder-csi: %w: %s", err, text)
	}
	return nil
}
