// SPDX-License-Identifier: MIT OR Apache-2.0

// The life of a claim, rights, schemas and the budget.

package clustertest

import (
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	authorization "k8s.io/api/authorization/v1"
	core "k8s.io/api/core/v1"
	policy "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"larder.dev/csi/internal/controller"
	"larder.dev/csi/internal/fence"
	"larder.dev/csi/internal/store"
)

func TestAClaimIsServedGrownAndDeleted(t *testing.T) {
	r := setup(t)
	a := r.machine(t, "life-a")
	r.claim(t, "db", 10*gib)
	r.pod(t, "db-0", "db", a.Name)
	r.runs(t, "db-0")
	id, err := r.volumeOf(background, "db")
	must(t, err)
	if got := r.record(t, id); got.Phase != fence.Serving || got.Holder != a.Name || got.Generation != 1 || got.Flash == nil {
		t.Fatalf("%+v", got)
	}
	nodes, err := r.attachedTo(background, id)
	must(t, err)
	if len(nodes) != 1 || nodes[0] != a.Name {
		t.Fatalf("the backing volume is attached to %v", nodes)
	}
	mounts, err := a.Mounts.List()
	must(t, err)
	if len(mounts) != 2 {
		t.Fatalf("mounts of the node: %v; want the staged and the published one", mounts)
	}

	r.grow(t, "db", "db-0", id)
	r.pod(t, "db-1", "db", a.Name)
	r.runs(t, "db-1")
	if a.Flash.Created != 1 {
		t.Fatalf("flash was made %d times: the second start must be warm", a.Flash.Created)
	}

	// The claim of a pod stays until the pod has ended.
	r.endClaim(t, "db")
	if _, err := r.objects.CoreV1().PersistentVolumeClaims(work).Get(background, "db", metav1.GetOptions{}); err != nil {
		t.Fatal(err)
	}
	r.endPod(t, "db-1")
	r.nothingLeft(t, id, a)
	eventually(t, "both PersistentVolumes are gone", bound, func() error {
		volumes, err := r.objects.CoreV1().PersistentVolumes().List(background, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, volume := range volumes.Items {
			if claim := volume.Spec.ClaimRef; claim != nil && (claim.Name == "db" || claim.Name == id) {
				return fmt.Errorf("%s of the claim %s is %s", volume.Name, claim.Name, volume.Status.Phase)
			}
		}
		return nil
	})
}

// grow extends a claim of 10 GiB to 20 GiB while a pod uses it, and ends this pod.
func (r *rig) grow(t *testing.T, name, pod, id string) {
	t.Helper()
	claims := r.objects.CoreV1().PersistentVolumeClaims(work)
	// A served volume keeps its size, so the resizer repeats until the pod has ended.
	eventually(t, "the claim asks for more", bound, func() error {
		claim, err := claims.Get(background, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		claim.Spec.Resources.Requests[core.ResourceStorage] = quantity(20 * gib)
		_, err = claims.Update(background, claim, metav1.UpdateOptions{})
		return err
	})
	eventually(t, "the resizer has tried", bound, func() error {
		claim, err := claims.Get(background, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if len(claim.Status.Conditions) == 0 {
			return fmt.Errorf("no condition")
		}
		return nil
	})
	if volume, err := r.store.Volume(background, id); err != nil || volume.Spec.CapacityBytes != 10*gib {
		t.Fatalf("a served volume was extended: %+v, %v", volume, err)
	}
	r.endPod(t, pod)
	eventually(t, "the volume is extended", 2*bound, func() error {
		volume, err := r.store.Volume(background, id)
		if err == nil && volume.Spec.CapacityBytes != 20*gib {
			return fmt.Errorf("it has %d bytes", volume.Spec.CapacityBytes)
		}
		return err
	})
	eventually(t, "the backing claim and the PersistentVolume are extended", bound, func() error { return r.sizes(id, 20*gib) })
}

// sizes compares the sizes of the backing claim and of the PersistentVolume of a volume.
func (r *rig) sizes(id string, want int64) error {
	claim, err := r.objects.CoreV1().PersistentVolumeClaims(namespace).Get(background, id, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if size := claim.Status.Capacity[core.ResourceStorage]; size.Value() != want {
		return fmt.Errorf("the backing claim has %d bytes", size.Value())
	}
	volumes, err := r.objects.CoreV1().PersistentVolumes().List(background, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for _, volume := range volumes.Items {
		if volume.Spec.CSI != nil && volume.Spec.CSI.VolumeHandle == id {
			if size := volume.Spec.Capacity[core.ResourceStorage]; size.Value() != want {
				return fmt.Errorf("the PersistentVolume has %d bytes", size.Value())
			}
			return nil
		}
	}
	return fmt.Errorf("no PersistentVolume of %s", id)
}

func TestRightsOfTheAccounts(t *testing.T) {
	r := setup(t)
	for _, refused := range []struct{ account, group, resource, verb, space string }{
		{"node", "", "pods", "create", namespace}, {"node", "", "pods", "delete", namespace}, {"node", "", "pods", "list", ""},
		{"node", "", "secrets", "get", namespace}, {"node", "", "persistentvolumeclaims", "create", namespace},
		{"node", "larder.dev", "lardervolumes", "create", namespace}, {"node", "larder.dev", "lardervolumes", "delete", namespace},
		{"node", "larder.dev", "lardervolumes", "get", work}, {"node", "", "nodes", "update", ""},
		{"node", "coordination.k8s.io", "leases", "update", "kube-system"}, {"node", "", "serviceaccounts/token", "create", namespace},
		{"controller", "", "secrets", "get", namespace}, {"controller", "", "secrets", "list", ""}, {"controller", "", "pods", "create", work},
		{"controller", "", "pods", "delete", work}, {"controller", "", "pods/exec", "create", namespace},
		{"controller", "", "persistentvolumeclaims", "delete", work}, {"controller", "", "nodes", "update", ""},
		{"controller", "", "serviceaccounts/token", "create", namespace},
		{"controller", "rbac.authorization.k8s.io", "rolebindings", "create", namespace},
		{"helper", "", "pods", "get", namespace}, {"helper", "larder.dev", "lardervolumes", "get", namespace},
		{"helper", "", "secrets", "get", namespace},
	} {
		resource, subresource, _ := strings.Cut(refused.resource, "/")
		review, err := r.objects.AuthorizationV1().SubjectAccessReviews().Create(background, &authorization.SubjectAccessReview{
			Spec: authorization.SubjectAccessReviewSpec{
				User:   "system:serviceaccount:" + namespace + ":" + release + "-" + refused.account,
				Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + namespace, "system:authenticated"},
				ResourceAttributes: &authorization.ResourceAttributes{
					Namespace: refused.space, Verb: refused.verb, Group: refused.group, Resource: resource, Subresource: subresource,
				},
			},
		}, metav1.CreateOptions{})
		must(t, err)
		if review.Status.Allowed {
			t.Errorf("%+v: allowed: %s", refused, review.Status.Reason)
		}
	}
	// Once by a request, so that the answers above are those that requests get.
	_, err := r.ofNoNode.CoreV1().Pods(namespace).Create(background, &core.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: core.PodSpec{Containers: []core.Container{{Name: "x", Image: "x"}}},
	}, metav1.CreateOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("a node plugin creates a pod: %v", err)
	}
	_, err = r.ofNoNode.CoreV1().Secrets(namespace).List(background, metav1.ListOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("a node plugin lists secrets: %v", err)
	}
}

func TestTheSchemaRefusesWhatTheDriverDoesNotWrite(t *testing.T) {
	r := setup(t)
	volume := func(change func(spec map[string]any)) *unstructured.Unstructured {
		spec := map[string]any{"name": "x", "backingClaim": "x", "backingStorageClass": san, "capacityBytes": int64(1), "cacheBytes": int64(1), "preset": "larder"}
		change(spec)
		return &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "larder.dev/v1alpha1", "kind": "LarderVolume", "metadata": map[string]any{"generateName": "schema-"}, "spec": spec,
		}}
	}
	volumes := r.records.Resource(store.VolumeResource).Namespace(namespace)
	for name, change := range map[string]func(map[string]any){
		"without a claim":  func(spec map[string]any) { delete(spec, "backingClaim") },
		"a negative size":  func(spec map[string]any) { spec["capacityBytes"] = int64(-1) },
		"a size as a text": func(spec map[string]any) { spec["cacheBytes"] = "1Gi" },
		"a long name":      func(spec map[string]any) { spec["name"] = strings.Repeat("x", 129) },
	} {
		_, err := volumes.Create(background, volume(change), metav1.CreateOptions{})
		if !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	made, err := volumes.Create(background, volume(func(map[string]any) {}), metav1.CreateOptions{})
	must(t, err)
	defer func() { must(t, volumes.Delete(background, made.GetName(), metav1.DeleteOptions{})) }()
	status := func(fields map[string]any) error {
		current, err := volumes.Get(background, made.GetName(), metav1.GetOptions{})
		must(t, err)
		current.Object["status"] = fields
		_, err = volumes.UpdateStatus(background, current, metav1.UpdateOptions{})
		return err
	}
	must(t, status(map[string]any{"generation": int64(2), "holder": "schema", "phase": "Preparing"}))
	for name, fields := range map[string]map[string]any{
		"an older generation":        {"generation": int64(1)},
		"no generation":              {},
		"an unknown phase":           {"generation": int64(2), "phase": "Serve"},
		"flash without a generation": {"generation": int64(2), "flash": map[string]any{"node": "a"}},
	} {
		if err := status(fields); !apierrors.IsInvalid(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A change of the record does not change its status, and the reverse.
	current, err := volumes.Get(background, made.GetName(), metav1.GetOptions{})
	must(t, err)
	current.Object["status"] = map[string]any{"generation": int64(9)}
	updated, err := volumes.Update(background, current, metav1.UpdateOptions{})
	must(t, err)
	if got, _, _ := unstructured.NestedInt64(updated.Object, "status", "generation"); got != 2 {
		t.Errorf("an update of the record changed its status: generation %d", got)
	}
}

// As a drain does: it evicts all pods of the node, and repeats what was refused.
func TestTheBudgetKeepsTheHelperPodOfAPublishedVolume(t *testing.T) {
	r := setup(t)
	a := r.machine(t, "budget-a")
	r.claim(t, "budget", 10*gib)
	r.pod(t, "budget-0", "budget", a.Name)
	r.runs(t, "budget-0")
	id, err := r.volumeOf(background, "budget")
	must(t, err)
	helper := controller.PodName(id, 1)
	evict := func(namespace, pod string) error {
		return r.objects.PolicyV1().Evictions(namespace).Evict(background, &policy.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: namespace}})
	}
	eventually(t, "the eviction is refused by the budget", bound, func() error {
		err := evict(namespace, helper)
		if apierrors.IsTooManyRequests(err) && strings.Contains(err.Error(), "disruption budget") {
			return nil
		}
		if err == nil {
			t.Fatal("the helper pod was evicted")
		}
		return err
	})
	got, err := r.objects.CoreV1().Pods(namespace).Get(background, helper, metav1.GetOptions{})
	must(t, err)
	if got.DeletionTimestamp != nil || got.Spec.NodeName != a.Name {
		t.Fatalf("%+v", got.ObjectMeta)
	}
	must(t, evict(work, "budget-0"))
	r.podGone(t, work, "budget-0")
	// The controller deletes it without an eviction once the volume is unstaged.
	r.podGone(t, namespace, helper)
	r.endClaim(t, "budget")
	r.nothingLeft(t, id, a)
}

func TestTwoNodesTakeOneVolume(t *testing.T) {
	r := setup(t)
	a, b := r.machine(t, "two-a"), r.machine(t, "two-b")
	for round := range 5 {
		id := r.create(t, fmt.Sprintf("two-%d", round))
		results := map[*machine]chan error{a: make(chan error, 1), b: make(chan error, 1)}
		for node, result := range results {
			go func() { result <- node.stage(background, id) }()
		}
		var holder *machine
		for node, result := range results {
			switch err := <-result; {
			case err == nil && holder != nil:
				t.Fatalf("both nodes staged the volume")
			case err == nil:
				holder = node
			default:
				// A conflict of the record, or the other one holds it already.
				if !strings.Contains(err.Error(), "holds the volume") {
					wants(t, err, codes.Aborted)
				}
			}
		}
		if holder == nil {
			t.Fatal("no node staged the volume")
		}
		if got := r.record(t, id); got.Holder != holder.Name || got.Generation != 1 {
			t.Fatalf("%+v", got)
		}
		r.destroy(t, id, a, b)
	}
}
