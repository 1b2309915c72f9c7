// SPDX-License-Identifier: MIT OR Apache-2.0

// Lost nodes: Kubernetes' own handling of the taint out-of-service and of a deleted node, the lease, and the node that returns.
//
// These tests run beside each other, because each waits for a lease to expire (40 s).

package clustertest

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	core "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"larder.dev/csi/internal/controller"
	"larder.dev/csi/internal/fence"
)

// takeover is the time limit of a wait for the end of a lost node: it is noticed, its pods are removed, its lease expires.
const takeover = 4 * time.Minute

// notReady waits until Kubernetes has noticed that a node does not report.
func (r *rig) notReady(t *testing.T, name string) {
	t.Helper()
	eventually(t, "node "+name+" is not ready", bound, func() error {
		node, err := r.objects.CoreV1().Nodes().Get(background, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == core.NodeReady && condition.Status != core.ConditionTrue {
				return nil
			}
		}
		return errors.New("it is ready")
	})
}

// outOfService declares a node dead, as docs/kubernetes.md describes, or takes that back.
func (r *rig) outOfService(t *testing.T, name string, dead bool) {
	t.Helper()
	eventually(t, "node "+name+" is tainted", bound, func() error {
		node, err := r.objects.CoreV1().Nodes().Get(background, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		var taints []core.Taint
		for _, taint := range node.Spec.Taints {
			if taint.Key != core.TaintNodeOutOfService {
				taints = append(taints, taint)
			}
		}
		if dead {
			taints = append(taints, core.Taint{Key: core.TaintNodeOutOfService, Value: "nodeshutdown", Effect: core.TaintEffectNoExecute})
		}
		node.Spec.Taints = taints
		_, err = r.objects.CoreV1().Nodes().Update(background, node, metav1.UpdateOptions{})
		return err
	})
}

// takes stages a volume whose former holder is lost.
func takes(t *testing.T, r *rig, node *machine, id string) {
	t.Helper()
	eventually(t, "node "+node.Name+" takes "+id, takeover, func() error { return node.stage(background, id) })
	nodes, err := r.attachedTo(background, id)
	must(t, err)
	if len(nodes) != 1 || nodes[0] != node.Name {
		t.Fatalf("the backing volume is attached to %v", nodes)
	}
}

func TestANodeThatIsOutOfServiceIsReplacedAndFenced(t *testing.T) {
	r := setup(t)
	t.Parallel()
	a, b := r.machine(t, "service-a"), r.machine(t, "service-b")
	r.claim(t, "service", 10*gib)
	r.pod(t, "service-0", "service", a.Name)
	r.runs(t, "service-0")
	id, err := r.volumeOf(background, "service")
	must(t, err)
	a.lose(true)
	r.notReady(t, a.Name)
	refuses(t, b, id)
	// Longer than a lease: an expired lease alone does not take the volume, since the helper pod exists.
	time.Sleep(fence.LeaseDuration + 10*time.Second)
	if got := r.record(t, id); got.Holder != a.Name {
		t.Fatalf("an expired lease alone led to %+v", got)
	}
	r.outOfService(t, a.Name, true)
	takes(t, r, b, id)
	if got := r.record(t, id); got.Holder != b.Name || got.Generation != 2 {
		t.Fatalf("%+v", got)
	}
	r.podGone(t, work, "service-0")

	// The node returns, with a server that ran on.
	r.outOfService(t, a.Name, false)
	a.lose(false)
	eventually(t, "the node is fenced, or has unstaged", bound, func() error {
		got, err := a.NodeGetVolumeHealth(background, &csi.NodeGetVolumeHealthRequest{VolumeId: id})
		if err != nil {
			return nil // not staged any more
		}
		for _, health := range got.GetVolumeHealth().GetHealthStatuses() {
			if health.GetReason() == "Fenced" {
				return nil
			}
		}
		return fmt.Errorf("health: %v", got)
	})
	refuses(t, a, id)
	unstaged(t, a, id)
	if got := r.record(t, id); got.Holder != b.Name || a.Servers.Flushed != 0 {
		t.Fatalf("%+v: a stale unstage changed the record, or flushed (%d)", got, a.Servers.Flushed)
	}
	swept(t, a, id)
	unstaged(t, b, id)
	staged(t, a, id)
	if a.Flash.Created != 2 {
		t.Fatalf("flash of the node that returned was made %d times, want 2: stale flash must not be used", a.Flash.Created)
	}
	unstaged(t, a, id)
	swept(t, b, id)
	r.endClaim(t, "service")
	r.nothingLeft(t, id, a, b)
}

// The controller that takes over starts after the pods were removed: it has not seen the lease expire.
func TestAControllerThatStartsAfterANodeWasLostFreesItsVolumes(t *testing.T) {
	r := setup(t)
	t.Parallel()
	a, b := r.machine(t, "started-a"), r.machine(t, "started-b")
	id := r.create(t, "started")
	staged(t, a, id)
	a.lose(true)
	r.notReady(t, a.Name)
	r.outOfService(t, a.Name, true)
	r.podGone(t, namespace, controller.PodName(id, 1))
	began := time.Now()
	r.controller.kill()
	takes(t, r, b, id)
	if took := time.Since(began); took < fence.LeaseDuration {
		t.Fatalf("the volume was set free %v after the controller's start, before it could see a lease expire", took)
	}
	r.destroy(t, id, b)
}

func TestANodeThatWasDeletedIsReplaced(t *testing.T) {
	r := setup(t)
	t.Parallel()
	a, b := r.machine(t, "deleted-a"), r.machine(t, "deleted-b")
	id := r.create(t, "deleted")
	staged(t, a, id)
	a.lose(true)
	r.notReady(t, a.Name)
	must(t, r.objects.CoreV1().Nodes().Delete(background, a.Name, metav1.DeleteOptions{}))
	eventually(t, "Kubernetes removes the helper pod", takeover, func() error {
		_, err := r.objects.CoreV1().Pods(namespace).Get(background, controller.PodName(id, 1), metav1.GetOptions{})
		return isGone("pod", err)
	})
	// The new process has not seen the lease expire; a helper pod that it made here would stay for ever.
	r.controller.kill()
	takes(t, r, b, id)
	if b.Flash.Created != 1 {
		t.Fatalf("flash of the node that took over was made %d times", b.Flash.Created)
	}
	r.destroy(t, id, b)
}

// Dirty data is on the lost node only: no other node gets the volume until an administrator gives the data up.
func TestDirtyDataOfALostNodeIsNotLostByATakeover(t *testing.T) {
	r := setup(t)
	t.Parallel()
	a, b := r.machine(t, "dirty-a"), r.machine(t, "dirty-b")
	id := r.create(t, "dirty", "preset", "prwc")
	staged(t, a, id)
	a.lose(true)
	r.notReady(t, a.Name)
	r.outOfService(t, a.Name, true)
	eventually(t, "the volume is free", takeover, func() error {
		if got := r.record(t, id); got.Holder != "" {
			return fmt.Errorf("%+v", got)
		}
		return nil
	})
	refuses(t, b, id)
	volume, err := r.store.Volume(background, id)
	must(t, err)
	volume.Status.Flash.Dirty = false
	_, err = r.store.UpdateStatus(background, volume)
	must(t, err)
	takes(t, r, b, id)
	r.destroy(t, id, b)
}
