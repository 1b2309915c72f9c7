// SPDX-License-Identifier: MIT OR Apache-2.0

// Publishing: a staged volume at the path of a pod, by a bind mount.
//
// Invariant: a target is recorded before it is made. The record and not the table of mounts has the mode of a target: the
// table shows the options of the file system too.

package node

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"larder.dev/csi/internal/reply"
	"larder.dev/csi/internal/settings"
)

// NodePublishVolume makes a staged volume appear at the path of a pod.
func (n *Node) NodePublishVolume(ctx context.Context, request *csi.NodePublishVolumeRequest) (*csi.NodePublishVolumeResponse, error) {
	id, target, staging := request.GetVolumeId(), request.GetTargetPath(), request.GetStagingTargetPath()
	if id == "" || target == "" || request.GetVolumeCapability() == nil {
		return nil, reply.Invalid("volume id, target path or volume capability: missing; accepted: all three")
	}
	if staging == "" {
		return nil, status.Error(codes.FailedPrecondition, "staging target path: missing; accepted: the path of NodeStageVolume")
	}
	mode, err := settings.ParseCapability(request.GetVolumeCapability())
	if err != nil {
		return nil, reply.Invalid("%v", err)
	}
	if err := n.Kubelet.Check(target); err != nil {
		return nil, reply.Invalid("target path: %v", err)
	}
	if err := n.Kubelet.Check(staging); err != nil {
		return nil, reply.Invalid("staging target path: %v", err)
	}
	if err := reply.Identify(id); err != nil {
		return nil, err
	}
	mode.ReadOnly = mode.ReadOnly || request.GetReadonly()
	err = n.run(ctx, id, func(context.Context) error { return n.publish(id, staging, target, mode) })
	if err != nil {
		return nil, err
	}
	return new(csi.NodePublishVolumeResponse), nil
}

func (n *Node) publish(id, staging, target string, mode settings.Mode) error {
	kept, err := n.load(id)
	if err != nil {
		return err
	}
	source := staging
	staged := kept != nil
	if staged && mode.Block {
		source = kept.Place.Path()
	} else if staged {
		if staged, err = n.isMounted(staging); err != nil {
			return err
		}
	}
	if !staged {
		return status.Errorf(codes.FailedPrecondition, "volume %s: is not staged at %s on this node", id, staging)
	}
	if err := n.agrees(id, kept, target, mode); err != nil {
		return err
	}
	// Recorded first, so that a crash leaves no target of which the node knows nothing.
	if kept.Published == nil {
		kept.Published = map[string]bool{}
	}
	kept.Published[target] = mode.ReadOnly
	if err := n.save(id, kept); err != nil {
		return err
	}
	create := n.Kubelet.MakeDir
	if mode.Block {
		create = n.Kubelet.MakeFile
	}
	if err := create(target); err != nil {
		return err
	}
	mounted, err := n.isMounted(target)
	if err != nil {
		return err
	}
	if mounted {
		return nil
	}
	return n.Bind(source, target, mode.ReadOnly)
}

// agrees refuses a target whose mode contradicts an earlier request.
func (n *Node) agrees(id string, kept *local, target string, mode settings.Mode) error {
	for other, readOnly := range kept.Published {
		mounted, err := n.isMounted(other)
		if err != nil {
			return err
		}
		switch {
		case !mounted:
			delete(kept.Published, other)
		case other == target && readOnly != mode.ReadOnly:
			return status.Errorf(codes.AlreadyExists, "volume %s: %s has another mode (read-only: %v)", id, target, readOnly)
		case other != target && mode.OnePod:
			return status.Errorf(codes.FailedPrecondition, "volume %s: is published at %s; accepted: one pod at a time", id, other)
		}
	}
	return nil
}

// NodeUnpublishVolume removes a volume from the path of a pod.
func (n *Node) NodeUnpublishVolume(ctx context.Context, request *csi.NodeUnpublishVolumeRequest) (*csi.NodeUnpublishVolumeResponse, error) {
	id, target := request.GetVolumeId(), request.GetTargetPath()
	if err := n.leaves(id, "target path", target); err != nil {
		return nil, err
	}
	err := n.run(ctx, id, func(context.Context) error { return n.unpublish(id, target) })
	if err != nil {
		return nil, err
	}
	return new(csi.NodeUnpublishVolumeResponse), nil
}

func (n *Node) unpublish(id, target string) error {
	mounted, err := n.isMounted(target)
	if err != nil {
		return err
	}
	if mounted {
		if err := n.Mounter.Unmount(target); err != nil {
			return err
		}
	}
	if err := n.Kubelet.Remove(target); err != nil {
		return err
	}
	kept, err := n.load(id)
	if err != nil || kept == nil {
		return err
	}
	if _, published := kept.Published[target]; !published {
		return nil
	}
	delete(kept.Published, target)
	return n.save(id, kept)
}
