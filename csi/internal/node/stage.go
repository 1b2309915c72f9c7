// SPDX-License-Identifier: MIT OR Apache-2.0

// Staging: from the record of a volume to a mounted block device.
//
// Invariant: flash has the generation before the record states that it is in use, and the record states so before a server is
// started. The node does not make the helper pod itself: who can make a privileged pod is root on every node.

package node

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"
	"k8s.io/mount-utils"

	"larder.dev/csi/internal/control"
	"larder.dev/csi/internal/device"
	"larder.dev/csi/internal/fence"
	"larder.dev/csi/internal/reply"
	"larder.dev/csi/internal/settings"
	"larder.dev/csi/internal/store"
)

// The intervals at which the server and the record are read while a request waits for them.
const (
	poll       = 100 * time.Millisecond
	recordPoll = 250 * time.Millisecond
)

// NodeStageVolume takes the volume for this node, has it served, and mounts its block device unless it is used raw.
func (n *Node) NodeStageVolume(ctx context.Context, request *csi.NodeStageVolumeRequest) (*csi.NodeStageVolumeResponse, error) {
	id, staging := request.GetVolumeId(), request.GetStagingTargetPath()
	if id == "" || staging == "" || request.GetVolumeCapability() == nil {
		return nil, reply.Invalid("volume id, staging target path or volume capability: missing; accepted: all three")
	}
	mode, err := settings.ParseCapability(request.GetVolumeCapability())
	if err != nil {
		return nil, reply.Invalid("%v", err)
	}
	if err := n.Kubelet.Check(staging); err != nil {
		return nil, reply.Invalid("staging target path: %v", err)
	}
	if err := reply.Identify(id); err != nil {
		return nil, err
	}
	err = n.run(ctx, id, func(ctx context.Context) error { return n.stage(ctx, id, staging, mode) })
	if err != nil {
		return nil, err
	}
	return new(csi.NodeStageVolumeResponse), nil
}

func (n *Node) stage(ctx context.Context, id, staging string, mode settings.Mode) error {
	volume, err := n.Store.Volume(ctx, id)
	if err != nil {
		return err
	}
	if volume.DeletionTimestamp != nil {
		return status.Errorf(codes.FailedPrecondition, "volume %s: is being deleted", id)
	}
	kept, err := n.take(ctx, volume)
	if err != nil {
		return err
	}
	n.lost.Delete(id)
	if _, err := n.await(ctx, id, kept.Generation); err != nil {
		return err
	}
	record := func(place device.Place) error {
		kept.Place = place
		return n.save(id, kept)
	}
	if !kept.Used {
		kept.Used = true
		if err := n.save(id, kept); err != nil {
			return err
		}
	}
	taken, err := n.taken(id)
	if err != nil {
		return err
	}
	socket := filepath.Join(n.dir(id), nbdFile(kept.Generation))
	if kept.Place, err = n.Devices.Attach(ctx, kept.Place, taken, id, socket, record); err != nil {
		return err
	}
	if err := n.Kubelet.MakeDir(staging); err != nil {
		return err
	}
	if mode.Block {
		return nil
	}
	return n.mount(kept.Place.Path(), staging, mode)
}

// take makes this node the holder, prepares its flash, and records that it serves, upon which the controller makes the helper pod.
func (n *Node) take(ctx context.Context, volume *store.Volume) (*local, error) {
	granted, changed, err := fence.Grant(volume.Status, n.Name)
	if err != nil {
		return nil, err
	}
	if changed {
		volume.Status = granted
		if volume, err = n.Store.UpdateStatus(ctx, volume); err != nil {
			return nil, err
		}
	}
	if err := n.Leases.Renew(ctx, volume.Name, n.Name); err != nil {
		return nil, err
	}
	kept, err := n.load(volume.Name)
	if err != nil {
		return nil, err
	}
	if volume.Status.Phase != fence.Serving {
		return n.prepare(ctx, volume)
	}
	if kept != nil && kept.Generation == volume.Status.Generation {
		// After a reboot its block device is missing, on a node that activates no logical volumes itself.
		return kept, n.Flash.Activate(ctx, volume.Name)
	}
	// The node was installed again under its name. A new grant judges its flash again.
	volume.Status, _ = fence.Release(volume.Status, n.Name, false)
	if _, err := n.Store.UpdateStatus(ctx, volume); err != nil {
		return nil, err
	}
	return nil, status.Errorf(codes.Aborted, "volume %s: %s has no record of generation %d; the grant is released",
		volume.Name, n.dir(volume.Name), volume.Status.Generation)
}

// prepare makes the flash and the configuration of the server.
func (n *Node) prepare(ctx context.Context, volume *store.Volume) (*local, error) {
	id := volume.Name
	found, err := n.Flash.Find(ctx, id)
	if err != nil {
		return nil, err
	}
	var generation int64
	if found != nil {
		generation = found.Generation
	}
	use, err := fence.Judge(volume.Status, n.Name, generation)
	if err != nil {
		return nil, err
	}
	// Recorded first, so that the lease is renewed while flash is zeroed.
	if err := n.save(id, &local{Generation: volume.Status.Generation, Place: device.Place{Number: -1}}); err != nil {
		return nil, err
	}
	if use == fence.Cold {
		klog.Infof("volume %s: flash of generation %d is not used; it is made again", id, generation)
		if err := n.Flash.Remove(ctx, id); err != nil {
			return nil, err
		}
		if err := n.clearState(id); err != nil {
			return nil, err
		}
		if err := n.Flash.Create(ctx, id, volume.Spec.CacheBytes); err != nil {
			return nil, err
		}
	} else if err := n.Flash.Activate(ctx, id); err != nil {
		return nil, err
	}
	if err := n.Flash.SetGeneration(ctx, id, volume.Status.Generation); err != nil {
		return nil, err
	}
	kept, err := n.configure(volume)
	if err != nil {
		return nil, err
	}
	if volume.Status, err = fence.Serve(volume.Status, n.Name, kept.WriteBack); err != nil {
		return nil, err
	}
	_, err = n.Store.UpdateStatus(ctx, volume)
	return kept, err
}

// configure writes what the helper pod reads.
func (n *Node) configure(volume *store.Volume) (*local, error) {
	taken, err := n.taken(volume.Name)
	if err != nil {
		return nil, err
	}
	place, err := n.Devices.Choose(taken)
	if err != nil {
		return nil, err
	}
	if err := n.write(volume.Name, ConfigFile, n.configuration(volume, place)); err != nil {
		return nil, err
	}
	kept := &local{
		Generation: volume.Status.Generation,
		WriteBack:  settings.WriteBack(volume.Spec.Preset, volume.Spec.Policy),
		WasDirty:   volume.Status.Flash != nil && volume.Status.Flash.Dirty,
		Place:      place,
	}
	return kept, n.save(volume.Name, kept)
}

// taken are the places of the other volumes of this node.
func (n *Node) taken(id string) ([]device.Place, error) {
	others, err := n.held()
	var taken []device.Place
	for other, kept := range others {
		if other != id {
			taken = append(taken, kept.Place)
		}
	}
	return taken, err
}

// await waits until the server answers.
func (n *Node) await(ctx context.Context, id string, generation int64) (control.Status, error) {
	for {
		got, err := n.server(id, generation).Status(ctx)
		switch {
		case err == nil && got.Name != id:
			return got, fmt.Errorf("%s: serves %q; accepted: %s", n.socket(id, generation), got.Name, id)
		case err == nil:
			return got, nil
		}
		select {
		case <-ctx.Done():
			return got, fmt.Errorf("the helper pod does not serve yet: %w (%w)", err, ctx.Err())
		case <-time.After(poll):
		}
	}
}

// mount formats the device unless it has a file system, and mounts it.
func (n *Node) mount(path, staging string, mode settings.Mode) error {
	mounted, err := n.isMounted(staging)
	if err != nil {
		return err
	}
	if mounted {
		source, _, err := mount.GetDeviceNameFromMount(n.Mounter, staging)
		if err != nil {
			return err
		}
		if source != path {
			return status.Errorf(codes.FailedPrecondition, "%s: %s is mounted there; accepted: %s, after the volume was unstaged",
				staging, source, path)
		}
	} else {
		options := mode.Options
		if mode.ReadOnly {
			options = append(options, "ro")
		}
		if err := n.Devices.Examine(path, mode.ReadOnly); err != nil {
			return err
		}
		if err := n.Mounter.FormatAndMount(path, staging, mode.FileSystem, options); err != nil {
			return err
		}
	}
	if mode.ReadOnly {
		return nil
	}
	// Also if it was mounted: an earlier request may have been interrupted in between.
	return n.extend(path, staging)
}

// extend lets a file system use all of its device: the origin may have grown since it was staged last.
func (n *Node) extend(path, mounted string) error {
	needed, err := n.Resizer.NeedResize(path, mounted)
	if err != nil || !needed {
		return err
	}
	_, err = n.Resizer.Resize(path, mounted)
	return err
}
