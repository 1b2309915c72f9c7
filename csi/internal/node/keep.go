// SPDX-License-Identifier: MIT OR Apache-2.0

// What the node does without a request: leases, reports, removal of stale flash, the end of dead connections.
//
// Invariant: flash is removed only if the record states that another node has served since, or that the volume is deleted.
// Flash without a record is kept.

package node

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"

	"larder.dev/csi/internal/device"
	"larder.dev/csi/internal/fence"
	"larder.dev/csi/internal/store"
)

// reportEvery is the interval at which the node reports its flash, and removes flash that no record needs.
const reportEvery = time.Minute

// Keep renews the leases of the volumes of this node, reports its flash, and removes stale flash, until the context ends.
func (n *Node) Keep(ctx context.Context) {
	renew, report := time.NewTicker(fence.RenewEvery), time.NewTicker(reportEvery)
	defer renew.Stop()
	defer report.Stop()
	n.tidy(ctx)
	for {
		select {
		case <-ctx.Done():
			return
		case <-renew.C:
			if err := n.Renew(ctx); err != nil {
				klog.Errorf("leases: %v", err)
			}
			if err := n.Cut(ctx); err != nil {
				klog.Errorf("connections: %v", err)
			}
		case <-report.C:
			n.tidy(ctx)
		}
	}
}

// tidy removes stale flash, and then reports what is free.
func (n *Node) tidy(ctx context.Context) {
	if err := n.Sweep(ctx); err != nil {
		klog.Errorf("stale flash: %v", err)
	}
	ctx, cancel := context.WithTimeout(ctx, n.Bound)
	defer cancel()
	if err := n.Report(ctx); err != nil {
		klog.Errorf("report of the node: %v", err)
	}
}

// Renew renews the lease of each volume that this node holds. A volume that it held and holds no more is marked as lost.
func (n *Node) Renew(ctx context.Context) error {
	held, err := n.held()
	if err != nil {
		return err
	}
	var failed error
	for id, kept := range held {
		bounded, cancel := context.WithTimeout(ctx, fence.RenewEvery)
		err := n.renew(bounded, id, kept.Generation)
		cancel()
		if err != nil {
			failed = fmt.Errorf("volume %s: %w", id, err)
		}
	}
	return failed
}

func (n *Node) renew(ctx context.Context, id string, generation int64) error {
	volume, err := n.Store.Volume(ctx, id)
	if err != nil && !apierrors.IsNotFound(err) {
		return err
	}
	if err == nil && volume.Status.Holder == n.Name && volume.Status.Generation == generation {
		return n.Leases.Renew(ctx, id, n.Name)
	}
	why := "the record of the volume is deleted"
	if err == nil {
		why = fmt.Sprintf("this node held the volume under generation %d; node %q holds it under generation %d", generation,
			volume.Status.Holder, volume.Status.Generation)
	}
	if _, known := n.lost.Swap(id, why); !known {
		klog.Errorf("ALARM: volume %s: %s", id, why)
	}
	return nil
}

// Cut ends the connections of devices whose server has ended. It does not wait for the operation of a volume that is in progress: this
// one may wait for the server.
func (n *Node) Cut(ctx context.Context) error {
	held, err := n.held()
	if err != nil {
		return err
	}
	var failed error
	for id, kept := range held {
		load := func() (device.Place, error) {
			kept, err := n.load(id)
			if err != nil || kept == nil {
				return device.Place{}, err
			}
			return kept.Place, nil
		}
		bounded, cancel := context.WithTimeout(ctx, fence.RenewEvery)
		cut, err := n.Devices.Cut(bounded, load, filepath.Join(n.dir(id), nbdFile(kept.Generation)))
		cancel()
		if cut {
			klog.Errorf("ALARM: volume %s: its server has ended, and its NBD device with it: requests get I/O errors", id)
		}
		if err != nil {
			failed = fmt.Errorf("volume %s: %w", id, err)
		}
	}
	return failed
}

// Report stores the free flash of this node, which the controller publishes as capacity.
func (n *Node) Report(ctx context.Context) error {
	size, free, err := n.Flash.Space(ctx)
	if err != nil {
		return err
	}
	status := store.NodeStatus{FlashBytes: size, FlashFreeBytes: free, Device: string(n.Devices.Kind())}
	return n.Store.Report(ctx, n.Name, status)
}

// Sweep removes flash of volumes that were deleted, or that another node has served since. Flash without a record stays: its
// record may have been deleted by mistake, and it may hold dirty data.
func (n *Node) Sweep(ctx context.Context) error {
	all, err := n.Flash.List(ctx)
	if err != nil {
		return err
	}
	// What is left of a volume whose flash was removed before the sweep was interrupted.
	known, err := n.known()
	if err != nil {
		return err
	}
	for _, found := range all {
		known[found.ID] = true
	}
	var failed error
	for id := range known {
		err := n.run(ctx, id, func(ctx context.Context) error { return n.sweep(ctx, id) })
		if err != nil {
			failed = err
		}
	}
	return failed
}

func (n *Node) sweep(ctx context.Context, id string) error {
	volume, err := n.Store.Volume(ctx, id)
	if apierrors.IsNotFound(err) {
		return n.forgotten(ctx, id)
	}
	if err != nil || volume.Status.Holder == n.Name {
		return err
	}
	here := volume.Status.Flash != nil && volume.Status.Flash.Node == n.Name
	if here && volume.DeletionTimestamp == nil {
		return nil
	}
	if kept, err := n.load(id); err != nil || kept != nil {
		// The kubelet has not unstaged it; its server may still have the flash open.
		return err
	}
	klog.Infof("volume %s: flash on this node is removed", id)
	if err := n.Flash.Remove(ctx, id); err != nil {
		return err
	}
	if here {
		if err := n.Store.FlashRemoved(ctx, volume); err != nil {
			return err
		}
	}
	// Last, so that an interrupted sweep is repeated.
	return n.clear(id)
}

// forgotten treats a volume without a record: its flash is kept, and named.
func (n *Node) forgotten(ctx context.Context, id string) error {
	found, err := n.Flash.Find(ctx, id)
	if err != nil {
		return err
	}
	if found != nil {
		klog.Warningf("%s: flash of a volume without a record; remove it with lvremove if the volume was deleted", n.Flash.Path(id))
		return nil
	}
	if kept, err := n.load(id); err != nil || kept != nil {
		return err
	}
	return n.clear(id)
}
