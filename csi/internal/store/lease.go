// SPDX-License-Identifier: MIT OR Apache-2.0

// Leases of volumes.
//
// Invariant: a lease shows that its holder is alive, and gives no right. The record does.

package store

import (
	"context"
	"fmt"
	"time"

	coordination "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"larder.dev/csi/internal/fence"
)

// Leases takes and renews the leases of volumes. A lease has the name of its volume.
type Leases struct {
	Kubernetes kubernetes.Interface
	Namespace  string
}

// Renew takes or renews the lease. The record of the volume, not the lease, decides who holds the volume: the caller has
// verified it.
func (l Leases) Renew(ctx context.Context, id, node string) error {
	leases := l.Kubernetes.CoordinationV1().Leases(l.Namespace)
	now := metav1.NewMicroTime(time.Now())
	lease, err := l.Lease(ctx, id)
	if err != nil {
		return err
	}
	isNew := lease == nil
	if isNew {
		lease = &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: id, Namespace: l.Namespace, Labels: map[string]string{VolumeLabel: id}}}
	}
	if IsStray(lease, node) {
		lease.Spec.HolderIdentity, lease.Spec.AcquireTime = ptr.To(node), &now
	}
	lease.Spec.RenewTime = &now
	lease.Spec.LeaseDurationSeconds = ptr.To(int32(fence.LeaseDuration / time.Second))
	if isNew {
		_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
	} else {
		_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
	}
	return err
}

// Lease reads the lease of a volume, nil if there is none.
func (l Leases) Lease(ctx context.Context, id string) (*coordination.Lease, error) {
	lease, err := l.Kubernetes.CoordinationV1().Leases(l.Namespace).Get(ctx, id, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return lease, err
}

// IsStray reports whether a lease, or nil, is that of another node than the holder.
func IsStray(lease *coordination.Lease, holder string) bool {
	return lease != nil && ptr.Deref(lease.Spec.HolderIdentity, "") != holder
}

// SeenIn is a text that differs after each renewal of a lease by the holder, and is constant while the holder does not renew.
// The lease is nil if there is none.
func SeenIn(lease *coordination.Lease, holder string) string {
	switch {
	case lease == nil:
		return "none for " + holder
	case IsStray(lease, holder):
		return "of another node than " + holder
	}
	return fmt.Sprintf("%s at %s", holder, lease.Spec.RenewTime)
}

// Release removes the lease of a volume that its holder releases, unless another node has taken it meanwhile.
func (l Leases) Release(ctx context.Context, id, node string) error {
	lease, err := l.Lease(ctx, id)
	if err != nil || lease == nil || IsStray(lease, node) {
		return err
	}
	err = l.Kubernetes.CoordinationV1().Leases(l.Namespace).Delete(ctx, id, metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{ResourceVersion: &lease.ResourceVersion},
	})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}

// Delete removes the lease of a volume that is deleted, or that of a former holder.
func (l Leases) Delete(ctx context.Context, id string) error {
	err := l.Kubernetes.CoordinationV1().Leases(l.Namespace).Delete(ctx, id, metav1.DeleteOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}
