// SPDX-License-Identifier: MIT OR Apache-2.0

// The part of Kubernetes' provisioner: claims become requests to the controller plugin, capacity becomes CSIStorageCapacity. It has
// the rights of the chart's service account, under which the provisioner runs.

package clustertest

import (
	"context"
	"strings"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"

	"larder.dev/csi/internal/store"
)

// patience is the time limit of a request of the provisioner.
const patience = 20 * time.Second

func quantity(bytes int64) resource.Quantity { return *resource.NewQuantity(bytes, resource.BinarySI) }

// provisioner is one round of the provisioner.
func (r *rig) provisioner(ctx context.Context) {
	claims, err := r.ofController.CoreV1().PersistentVolumeClaims("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	for n := range claims.Items {
		claim := &claims.Items[n]
		if claim.Annotations["volume.kubernetes.io/storage-provisioner"] == store.DriverName && claim.Spec.VolumeName == "" &&
			claim.Annotations["volume.kubernetes.io/selected-node"] != "" && claim.DeletionTimestamp == nil {
			logged(claim.Name, r.provision(ctx, claim))
		}
	}
	volumes, err := r.ofController.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	for n := range volumes.Items {
		volume := &volumes.Items[n]
		if volume.Spec.CSI != nil && volume.Spec.CSI.Driver == store.DriverName && volume.Status.Phase == core.VolumeReleased &&
			volume.DeletionTimestamp == nil {
			logged(volume.Name, r.unprovision(ctx, volume))
		}
	}
	logged("capacity", r.capacity(ctx))
}

func logged(name string, err error) {
	if err != nil {
		klog.V(2).Infof("provisioner: %s: %v", name, err)
	}
}

func (r *rig) provision(ctx context.Context, claim *core.PersistentVolumeClaim) error {
	class, err := r.ofController.StorageV1().StorageClasses().Get(ctx, *claim.Spec.StorageClassName, metav1.GetOptions{})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	wanted := claim.Spec.Resources.Requests[core.ResourceStorage]
	made, err := r.plugin.CreateVolume(ctx, &csi.CreateVolumeRequest{
		Name: "pvc-" + string(claim.UID), Parameters: parameters(class), VolumeCapabilities: []*csi.VolumeCapability{mounted()},
		CapacityRange: &csi.CapacityRange{RequiredBytes: wanted.Value()},
		AccessibilityRequirements: &csi.TopologyRequirement{Preferred: []*csi.Topology{{Segments: map[string]string{
			store.TopologyKey: claim.Annotations["volume.kubernetes.io/selected-node"],
		}}}},
	})
	if err != nil {
		return err
	}
	volume := volumeFor(claim, store.DriverName, made.GetVolume().GetVolumeId(), made.GetVolume().GetCapacityBytes())
	volume.Spec.CSI.FSType = "ext4"
	_, err = r.ofController.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{})
	return err
}

func (r *rig) unprovision(ctx context.Context, volume *core.PersistentVolume) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if _, err := r.plugin.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: volume.Spec.CSI.VolumeHandle}); err != nil {
		return err
	}
	return r.ofController.CoreV1().PersistentVolumes().Delete(ctx, volume.Name, metav1.DeleteOptions{})
}

// parameters are those of the class without the provisioner's own.
func parameters(class *storage.StorageClass) map[string]string {
	own := map[string]string{}
	for key, value := range class.Parameters {
		if !strings.HasPrefix(key, "csi.storage.k8s.io/") {
			own[key] = value
		}
	}
	return own
}

func mounted() *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: "ext4"}},
	}
}

// capacity publishes the capacity of each node for the class.
func (r *rig) capacity(ctx context.Context) error {
	class, err := r.ofController.StorageV1().StorageClasses().Get(ctx, class, metav1.GetOptions{})
	if err != nil {
		return err
	}
	nodes, err := r.ofController.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: store.TopologyKey})
	if err != nil {
		return err
	}
	all := r.ofController.StorageV1().CSIStorageCapacities(namespace)
	for _, node := range nodes.Items {
		if _, err := all.Get(ctx, "capacity-"+node.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			continue
		}
		segments := map[string]string{store.TopologyKey: node.Name}
		bounded, cancel := context.WithTimeout(ctx, patience)
		got, err := r.plugin.GetCapacity(bounded, &csi.GetCapacityRequest{
			Parameters: parameters(class), AccessibleTopology: &csi.Topology{Segments: segments},
		})
		cancel()
		if err != nil {
			return err
		}
		if got.GetAvailableCapacity() == 0 {
			continue
		}
		_, err = all.Create(ctx, &storage.CSIStorageCapacity{
			ObjectMeta:       metav1.ObjectMeta{Name: "capacity-" + node.Name, Namespace: namespace},
			StorageClassName: class.Name, NodeTopology: &metav1.LabelSelector{MatchLabels: segments},
			Capacity: ptr.To(quantity(got.GetAvailableCapacity())),
		}, metav1.CreateOptions{})
		if err != nil {
			return err
		}
	}
	return nil
}
