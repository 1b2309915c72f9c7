// SPDX-License-Identifier: MIT OR Apache-2.0

// The policy of node plugins: each changes what concerns its own node.

package clustertest

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"larder.dev/csi/internal/fence"
	"larder.dev/csi/internal/store"
)

// denied states that the policy refuses with these words.
func denied(t *testing.T, what string, err error, words string) {
	t.Helper()
	if err == nil || !strings.Contains(err.Error(), "ValidatingAdmissionPolicy") || !strings.Contains(err.Error(), words) {
		t.Errorf("%s: %v; wanted a refusal with %q", what, err, words)
	}
}

func TestANodePluginChangesWhatConcernsItsNode(t *testing.T) {
	r := setup(t)
	a, b := r.machine(t, "policy-a"), r.machine(t, "policy-b")
	id := r.create(t, "policy")
	staged(t, a, id)
	defer r.destroy(t, id, a, b)
	defer unstaged(t, a, id)
	status := func(change func(*fence.Record)) error {
		volume, err := b.Store.Volume(background, id)
		must(t, err)
		change(&volume.Status)
		_, err = b.Store.UpdateStatus(background, volume)
		return err
	}

	denied(t, "a report of another node", b.Store.Report(background, a.Name,
		store.NodeStatus{Device: "ublk"}), "policy-b")
	denied(t, "a volume that another node holds", status(func(s *fence.Record) {
		s.Holder, s.Generation = b.Name, s.Generation+1
	}), "the holder is 'policy-a'")
	denied(t, "a volume set free", status(func(s *fence.Record) { s.Holder, s.Phase = "", fence.Free }), "the holder is 'policy-a'")
	denied(t, "the lease of another node, renewed", b.Leases.Renew(background, id, a.Name), "accepted: the holder policy-b")
	denied(t, "the lease of another node, deleted",
		b.Leases.Kubernetes.CoordinationV1().Leases(namespace).Delete(background, id, metav1.DeleteOptions{}), "accepted: the holder policy-b")
	denied(t, "the lease of another node, taken", b.Leases.Renew(background, id, b.Name), "accepted: the holder policy-b")
	volume, err := b.Store.Volume(background, id)
	must(t, err)
	volume.Spec.CacheBytes *= 2
	_, err = b.Store.Update(background, volume)
	denied(t, "the specification", err, "only the finalizer")

	own, err := a.Store.Volume(background, id)
	must(t, err)
	own.Status.Generation += 5
	_, err = a.Store.UpdateStatus(background, own)
	denied(t, "a generation without a grant", err, "rises by one")
	own, err = a.Store.Volume(background, id)
	must(t, err)
	own.Status.Flash = &fence.Flash{Node: b.Name, Generation: own.Status.Generation}
	_, err = a.Store.UpdateStatus(background, own)
	denied(t, "the flash of another node", err, "records its own flash")

	lease, err := r.objects.CoordinationV1().Leases(namespace).Get(background, id, metav1.GetOptions{})
	must(t, err)
	_, err = r.ofNoNode.CoordinationV1().Leases(namespace).Update(background, lease, metav1.UpdateOptions{})
	denied(t, "a token of no node", err, "names no node")
}

// A node that takes a volume may not record that the dirty flash of another one is gone.
func TestANodePluginDoesNotForgetTheDirtyFlashOfAnotherNode(t *testing.T) {
	r := setup(t)
	b := r.machine(t, "policy-c")
	id := r.create(t, "policy-dirty")
	volume, err := r.store.Volume(background, id)
	must(t, err)
	volume.Status = fence.Record{Generation: 3, Flash: &fence.Flash{Node: "policy-gone", Generation: 3, Dirty: true}}
	volume, err = r.store.UpdateStatus(background, volume)
	must(t, err)
	dirty := *volume.Status.Flash
	volume.Status = fence.Record{Generation: 4, Holder: b.Name, Phase: fence.Preparing, Flash: &dirty}
	_, err = b.Store.UpdateStatus(background, volume)
	denied(t, "a volume with dirty flash of another node", err, "may hold data that the origin lacks")
	volume.Status.Flash = nil
	_, err = b.Store.UpdateStatus(background, volume)
	denied(t, "the dirty flash of another node", err, "may hold data that the origin lacks")
	volume, err = r.store.Volume(background, id)
	must(t, err)
	volume.Status.Flash = nil
	_, err = r.store.UpdateStatus(background, volume)
	must(t, err)
	r.destroy(t, id, b)
}
