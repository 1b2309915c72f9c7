// SPDX-License-Identifier: MIT OR Apache-2.0

// A backing driver: it makes, attaches, extends and deletes volumes. It attaches a volume to one node at a time.

package clustertest

import (
	"context"
	"slices"

	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
)

const backingDriver = "backing.example"

func backingClass() *storage.StorageClass {
	return &storage.StorageClass{
		ObjectMeta: metav1.ObjectMeta{Name: san}, Provisioner: backingDriver, AllowVolumeExpansion: ptr.To(true),
		ReclaimPolicy:     ptr.To(core.PersistentVolumeReclaimDelete),
		VolumeBindingMode: ptr.To(storage.VolumeBindingImmediate),
	}
}

// backing is one round of the backing driver. An error is repeated in the next one.
func (r *rig) backing(ctx context.Context) {
	claims, err := r.objects.CoreV1().PersistentVolumeClaims(namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	for n := range claims.Items {
		if claim := &claims.Items[n]; ptr.Deref(claim.Spec.StorageClassName, "") == san && claim.DeletionTimestamp == nil {
			if err := r.provideFor(ctx, claim); err != nil && ctx.Err() == nil {
				klog.V(2).Infof("backing driver: %s: %v", claim.Name, err)
			}
		}
	}
	attachments, err := r.objects.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	attached := r.attach(ctx, attachments.Items)
	volumes, err := r.objects.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	for _, volume := range volumes.Items {
		if volume.Spec.CSI != nil && volume.Spec.CSI.Driver == backingDriver && volume.Status.Phase == core.VolumeReleased &&
			!attached[volume.Name] && volume.DeletionTimestamp == nil {
			_ = r.objects.CoreV1().PersistentVolumes().Delete(ctx, volume.Name, metav1.DeleteOptions{})
		}
	}
}

// provideFor makes the volume of a claim, or extends it.
func (r *rig) provideFor(ctx context.Context, claim *core.PersistentVolumeClaim) error {
	volumes := r.objects.CoreV1().PersistentVolumes()
	wanted := claim.Spec.Resources.Requests[core.ResourceStorage]
	if claim.Status.Phase != core.ClaimBound {
		_, err := volumes.Create(ctx, volumeFor(claim, backingDriver, string(claim.UID), wanted.Value()), metav1.CreateOptions{})
		return err
	}
	if has := claim.Status.Capacity[core.ResourceStorage]; has.Cmp(wanted) >= 0 {
		return nil
	}
	return retry.RetryOnConflict(retry.DefaultRetry, func() error {
		volume, err := volumes.Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		volume.Spec.Capacity[core.ResourceStorage] = wanted
		if _, err := volumes.Update(ctx, volume, metav1.UpdateOptions{}); err != nil {
			return err
		}
		current, err := r.objects.CoreV1().PersistentVolumeClaims(claim.Namespace).Get(ctx, claim.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		current.Status.Capacity[core.ResourceStorage] = wanted
		_, err = r.objects.CoreV1().PersistentVolumeClaims(claim.Namespace).UpdateStatus(ctx, current, metav1.UpdateOptions{})
		return err
	})
}

// volumeFor is the PersistentVolume of a claim.
func volumeFor(claim *core.PersistentVolumeClaim, driver, handle string, bytes int64) *core.PersistentVolume {
	return &core.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{
			Name: "pvc-" + string(claim.UID), Annotations: map[string]string{"pv.kubernetes.io/provisioned-by": driver},
		},
		Spec: core.PersistentVolumeSpec{
			Capacity:                      core.ResourceList{core.ResourceStorage: quantity(bytes)},
			AccessModes:                   claim.Spec.AccessModes,
			VolumeMode:                    claim.Spec.VolumeMode,
			StorageClassName:              ptr.Deref(claim.Spec.StorageClassName, ""),
			PersistentVolumeReclaimPolicy: core.PersistentVolumeReclaimDelete,
			ClaimRef: &core.ObjectReference{
				Kind: "PersistentVolumeClaim", APIVersion: "v1", Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
			PersistentVolumeSource: core.PersistentVolumeSource{CSI: &core.CSIPersistentVolumeSource{Driver: driver, VolumeHandle: handle}},
		},
	}
}

// attach attaches volumes that are attached to no node, and returns those that are attached. Kubernetes detaches by a deletion.
func (r *rig) attach(ctx context.Context, all []storage.VolumeAttachment) map[string]bool {
	attached := map[string]bool{}
	for _, attachment := range all {
		if attachment.Status.Attached {
			attached[ptr.Deref(attachment.Spec.Source.PersistentVolumeName, "")] = true
		}
	}
	for n := range all {
		attachment := &all[n]
		volume := ptr.Deref(attachment.Spec.Source.PersistentVolumeName, "")
		if attachment.Spec.Attacher != backingDriver || attached[volume] || attachment.DeletionTimestamp != nil {
			continue
		}
		attachment.Status.Attached = true
		if _, err := r.objects.StorageV1().VolumeAttachments().UpdateStatus(ctx, attachment, metav1.UpdateOptions{}); err == nil {
			attached[volume] = true
		}
	}
	return attached
}

// attachedTo lists the nodes to which the backing volume of a claim is attached.
func (r *rig) attachedTo(ctx context.Context, claim string) ([]string, error) {
	found, err := r.objects.CoreV1().PersistentVolumeClaims(namespace).Get(ctx, claim, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	attachments, err := r.objects.StorageV1().VolumeAttachments().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	var nodes []string
	for _, attachment := range attachments.Items {
		if ptr.Deref(attachment.Spec.Source.PersistentVolumeName, "") == found.Spec.VolumeName && attachment.Status.Attached {
			nodes = append(nodes, attachment.Spec.NodeName)
		}
	}
	slices.Sort(nodes)
	return nodes, nil
}
