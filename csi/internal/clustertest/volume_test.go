// SPDX-License-Identifier: MIT OR Apache-2.0

// Claims, pods and volumes of the tests.

package clustertest

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"larder.dev/csi/internal/fence"
	"larder.dev/csi/internal/store"
)

// work is the namespace of the pods that use volumes.
const work = "work"

const gib = int64(1) << 30

// claim makes a claim of the chart's class.
func (r *rig) claim(t *testing.T, name string, bytes int64) {
	t.Helper()
	_, err := r.objects.CoreV1().PersistentVolumeClaims(work).Create(background, &core.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: core.PersistentVolumeClaimSpec{
			AccessModes: []core.PersistentVolumeAccessMode{core.ReadWriteOnce}, StorageClassName: ptr.To(class),
			Resources: core.VolumeResourceRequirements{Requests: core.ResourceList{core.ResourceStorage: quantity(bytes)}},
		},
	}, metav1.CreateOptions{})
	must(t, err)
}

// pod makes a pod that uses a claim on a node.
func (r *rig) pod(t *testing.T, name, claim, node string) {
	t.Helper()
	_, err := r.objects.CoreV1().Pods(work).Create(background, &core.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: core.PodSpec{
			NodeSelector: map[string]string{store.TopologyKey: node},
			Containers: []core.Container{{
				Name: "main", Image: "example", VolumeMounts: []core.VolumeMount{{Name: "data", MountPath: "/data"}},
			}},
			TerminationGracePeriodSeconds: ptr.To(int64(1)),
			Volumes: []core.Volume{{Name: "data", VolumeSource: core.VolumeSource{
				PersistentVolumeClaim: &core.PersistentVolumeClaimVolumeSource{ClaimName: claim},
			}}},
		},
	}, metav1.CreateOptions{})
	must(t, err)
}

func (r *rig) runs(t *testing.T, name string) {
	t.Helper()
	eventually(t, "pod "+name+" runs", bound, func() error {
		pod, err := r.objects.CoreV1().Pods(work).Get(background, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if pod.Status.Phase != core.PodRunning {
			return fmt.Errorf("it is %s: %v", pod.Status.Phase, pod.Status.Conditions)
		}
		return nil
	})
}

// endPod deletes a pod and waits until it is gone.
func (r *rig) endPod(t *testing.T, name string) {
	t.Helper()
	must(t, r.objects.CoreV1().Pods(work).Delete(background, name, metav1.DeleteOptions{}))
	r.podGone(t, work, name)
}

func (r *rig) podGone(t *testing.T, namespace, name string) {
	t.Helper()
	eventually(t, "pod "+name+" is gone", bound, func() error {
		_, err := r.objects.CoreV1().Pods(namespace).Get(background, name, metav1.GetOptions{})
		return isGone("pod", err)
	})
}

func isGone(what string, err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return errors.Join(fmt.Errorf("%s exists", what), err)
}

func (r *rig) endClaim(t *testing.T, name string) {
	t.Helper()
	must(t, r.objects.CoreV1().PersistentVolumeClaims(work).Delete(background, name, metav1.DeleteOptions{}))
}

// create makes a volume by a request, as the provisioner does, and repeats it as the provisioner does.
func (r *rig) create(t *testing.T, name string, more ...string) string {
	t.Helper()
	given := map[string]string{"backingStorageClass": san, "cacheSize": "1Gi"}
	for n := 0; n < len(more); n += 2 {
		given[more[n]] = more[n+1]
	}
	var id string
	eventually(t, "volume "+name+" is created", bound, func() error {
		ctx, cancel := context.WithTimeout(background, patience)
		defer cancel()
		made, err := r.plugin.CreateVolume(ctx, &csi.CreateVolumeRequest{
			Name: name, Parameters: given, VolumeCapabilities: []*csi.VolumeCapability{mounted()},
			CapacityRange: &csi.CapacityRange{RequiredBytes: 10 * gib},
		})
		id = made.GetVolume().GetVolumeId()
		return err
	})
	return id
}

func (r *rig) deleteVolume(id string) error {
	ctx, cancel := context.WithTimeout(background, patience)
	defer cancel()
	_, err := r.plugin.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: id})
	return err
}

// destroy deletes a volume that may still be staged on these nodes, and waits until nothing of it is left.
func (r *rig) destroy(t *testing.T, id string, nodes ...*machine) {
	t.Helper()
	for _, node := range nodes {
		eventually(t, "unstaged from "+node.Name, bound, func() error { return node.unstage(background, id) })
	}
	eventually(t, "volume "+id+" is deleted", bound, func() error { return r.deleteVolume(id) })
	r.nothingLeft(t, id, nodes...)
}

// nothingLeft waits until the objects and the flash of a volume are gone.
func (r *rig) nothingLeft(t *testing.T, id string, nodes ...*machine) {
	t.Helper()
	eventually(t, "nothing of "+id+" is left", bound, func() error {
		if _, err := r.store.Volume(background, id); !apierrors.IsNotFound(err) {
			return isGone("the record", err)
		}
		claim, err := r.objects.CoreV1().PersistentVolumeClaims(namespace).Get(background, id, metav1.GetOptions{})
		if !apierrors.IsNotFound(err) {
			return isGone(fmt.Sprintf("the backing claim (%v)", claim.Finalizers), err)
		}
		if _, err := r.objects.CoordinationV1().Leases(namespace).Get(background, id, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return isGone("the lease", err)
		}
		pods, err := r.objects.CoreV1().Pods(namespace).List(background, metav1.ListOptions{LabelSelector: store.VolumeLabel + "=" + id})
		if err != nil || len(pods.Items) != 0 {
			return errors.Join(fmt.Errorf("%d helper pods exist", len(pods.Items)), err)
		}
		for _, node := range nodes {
			if found, _ := node.Flash.Find(background, id); found != nil {
				return fmt.Errorf("flash on %s exists", node.Name)
			}
		}
		return nil
	})
}

func (r *rig) record(t *testing.T, id string) fence.Record {
	t.Helper()
	volume, err := r.store.Volume(background, id)
	must(t, err)
	return volume.Status
}

// staged stages a volume as a kubelet does: it repeats.
func staged(t *testing.T, node *machine, id string) {
	t.Helper()
	eventually(t, id+" is staged on "+node.Name, bound, func() error { return node.stage(background, id) })
}

func unstaged(t *testing.T, node *machine, id string) {
	t.Helper()
	eventually(t, id+" is unstaged from "+node.Name, bound, func() error { return node.unstage(background, id) })
}

// refuses expects a stage to be refused. Like the kubelet it repeats a request that meets another operation on the volume: a
// node looks after its volumes by itself.
func refuses(t *testing.T, node *machine, id string) {
	t.Helper()
	eventually(t, id+" is refused on "+node.Name, bound, func() error {
		err := node.stage(background, id)
		if status.Code(err) == codes.Aborted {
			return err
		}
		wants(t, err, codes.FailedPrecondition)
		return nil
	})
}

// swept waits until a node has removed its stale flash of a volume. The flash of a volume that is deleted before is kept.
func swept(t *testing.T, node *machine, id string) {
	t.Helper()
	eventually(t, "the stale flash of "+id+" is removed from "+node.Name, bound, func() error {
		if found, _ := node.Flash.Find(background, id); found != nil {
			return fmt.Errorf("generation %d", found.Generation)
		}
		return nil
	})
}

func wants(t *testing.T, err error, code codes.Code) {
	t.Helper()
	if status.Code(err) != code {
		t.Fatalf("got %v, want %v", err, code)
	}
}
