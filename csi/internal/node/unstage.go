// SPDX-License-Identifier: MIT OR Apache-2.0

// Unstaging: from a mounted block device to a volume that no node holds.
//
// Invariant: the volume is released after its device has ended and its dirty data is on the origin. Flash is kept and not
// detached, so that the volume is warm if it returns.

package node

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"larder.dev/csi/internal/control"
	"larder.dev/csi/internal/device"
	"larder.dev/csi/internal/fence"
	"larder.dev/csi/internal/reply"
)

// settles is how long a device may be in use after its unmount.
const settles = 3 * time.Second

// NodeUnstageVolume unmounts the volume, flushes it, ends its device and gives the volume back.
func (n *Node) NodeUnstageVolume(ctx context.Context, request *csi.NodeUnstageVolumeRequest) (*csi.NodeUnstageVolumeResponse, error) {
	id, staging := request.GetVolumeId(), request.GetStagingTargetPath()
	if err := n.leaves(id, "staging target path", staging); err != nil {
		return nil, err
	}
	err := n.run(ctx, id, func(ctx context.Context) error { return n.unstage(ctx, id, staging) })
	if err != nil {
		return nil, err
	}
	return new(csi.NodeUnstageVolumeResponse), nil
}

// leaves checks the id of a volume and the path that it is removed from.
func (n *Node) leaves(id, name, path string) error {
	if id == "" || path == "" {
		return reply.Invalid("volume id or %s: missing; accepted: both", name)
	}
	if err := n.Kubelet.Check(path); err != nil {
		return reply.Invalid("%s: %v", name, err)
	}
	return reply.Identify(id)
}

func (n *Node) unstage(ctx context.Context, id, staging string) error {
	kept, err := n.load(id)
	if err != nil {
		return err
	}
	mounted, err := n.isMounted(staging)
	if err != nil {
		return err
	}
	if mounted {
		if err := n.Mounter.Unmount(staging); err != nil {
			return err
		}
	}
	if kept == nil {
		return nil
	}
	volume, err := n.Store.Volume(ctx, id)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if err != nil || volume.Status.Holder != n.Name || volume.Status.Generation != kept.Generation {
		// Another node may hold the volume. What this node has of it is stale, and nothing is flushed.
		n.lost.Delete(id)
		return errors.Join(n.Devices.Detach(ctx, kept.Place), n.forget(id))
	}
	// A mount namespace of its own may have a copy of the mount, which keeps data that was not written yet.
	if err := n.unused(ctx, id, kept.Place); err != nil {
		return err
	}
	flushed := false
	if volume.Status.Phase == fence.Serving {
		if flushed, err = n.flush(ctx, id, kept); err != nil {
			return err
		}
	}
	if err := n.Devices.Detach(ctx, kept.Place); err != nil {
		return err
	}
	if released, changed := fence.Release(volume.Status, n.Name, flushed); changed {
		volume.Status = released
		if _, err := n.Store.UpdateStatus(ctx, volume); err != nil {
			return err
		}
	}
	if err := n.released(ctx, id, kept.Generation); err != nil {
		return err
	}
	return errors.Join(n.forget(id), n.Leases.Release(ctx, id, n.Name))
}

// unused waits until nothing holds the device, for a moment: after an unmount udev may examine it.
func (n *Node) unused(ctx context.Context, id string, place device.Place) error {
	for end := time.Now().Add(settles); ; {
		used, err := n.Devices.InUse(place)
		if err != nil || !used {
			return err
		}
		if time.Now().After(end) {
			return status.Errorf(codes.FailedPrecondition,
				"volume %s: %s is still mounted in another mount namespace; accepted: after it is unmounted there", id, place.Path())
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(poll):
		}
	}
}

// flush makes all data durable on the origin, and reports whether that was confirmed. A clean cache is released without it,
// because the origin has its data: its unmount has flushed it, or has reported the error.
// So is a volume of which no device was made under this grant.
func (n *Node) flush(ctx context.Context, id string, kept *local) (bool, error) {
	err := n.server(id, kept.Generation).Flush(ctx, n.FlushBound)
	switch {
	case err == nil:
		return true, nil
	case !kept.Used:
		return !kept.WasDirty, nil
	case kept.WriteBack:
		return false, status.Errorf(codes.Unavailable,
			"volume %s: flash holds data that the origin lacks, and the flush failed: %v; the volume stays on this node until a flush succeeds", id, err)
	case control.Refused(err):
		klog.Errorf("ALARM: volume %s: the last flush failed: %v", id, err)
	default:
		klog.Warningf("volume %s: released without a flush, since its server does not answer: %v", id, err)
	}
	return false, nil
}

// released waits until the helper pod is gone and the controller has set the volume free.
func (n *Node) released(ctx context.Context, id string, generation int64) error {
	for {
		volume, err := n.Store.Volume(ctx, id)
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err != nil:
			return err
		case volume.Status.Holder != n.Name || volume.Status.Generation != generation:
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("the helper pod is still being stopped: %w", ctx.Err())
		case <-time.After(recordPoll):
		}
	}
}
