// SPDX-License-Identifier: MIT OR Apache-2.0

// Package node is the node service: it stages, publishes and measures volumes on the node on which it runs.
//
// The server of a volume runs in a helper pod, which the controller makes. The node plugin prepares what this pod needs: the
// flash, and a directory with the server's configuration, state and sockets. Then it waits for the control socket.
//
// Invariants:
//   - One operation of a volume runs at a time; another one is refused (Aborted). An operation that exceeds its time limit is
//     answered, and keeps the volume locked until it ends: a device that hangs blocks one volume, and no other.
//   - Each step can be repeated. What is needed after a crash of the plugin is in the volume's directory and in its record.
//   - No name of a request is part of a path before it was checked.
//
// Why the plugin serves nothing itself: an upgrade of the plugin would stop all volumes of the node, and only a pod can hold the
// backing claim.
package node

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"k8s.io/klog/v2"
	"k8s.io/mount-utils"

	"larder.dev/csi/internal/control"
	"larder.dev/csi/internal/device"
	"larder.dev/csi/internal/flash"
	"larder.dev/csi/internal/reply"
	"larder.dev/csi/internal/safepath"
	"larder.dev/csi/internal/store"
)

// Flash is the volume group of the node.
type Flash interface {
	Path(id string) string
	Space(ctx context.Context) (size, free int64, err error)
	List(ctx context.Context) ([]flash.Volume, error)
	Find(ctx context.Context, id string) (*flash.Volume, error)
	Create(ctx context.Context, id string, bytes int64) error
	SetGeneration(ctx context.Context, id string, generation int64) error
	Activate(ctx context.Context, id string) error
	Remove(ctx context.Context, id string) error
}

// Devices makes block devices of served volumes.
type Devices interface {
	Kind() device.Kind
	Choose(taken []device.Place) (device.Place, error)
	Attach(ctx context.Context, place device.Place, taken []device.Place, name, socket string, record func(device.Place) error) (device.Place, error)
	Detach(ctx context.Context, place device.Place) error
	// Cut ends the connection of a device to a server that has ended, and reports whether it did.
	Cut(ctx context.Context, load func() (device.Place, error), socket string) (bool, error)
	Bytes(path string) (int64, error)
	// Examine is called before a device is formatted or mounted.
	Examine(path string, readOnly bool) error
	// InUse reports whether something holds the device: a file system that is mounted anywhere, or a program for a moment.
	InUse(place device.Place) (bool, error)
}

// Server is a Larder server.
type Server interface {
	Status(ctx context.Context) (control.Status, error)
	Flush(ctx context.Context, bound time.Duration) error
}

// Resizer extends a file system to the size of its device.
type Resizer interface {
	NeedResize(device, path string) (bool, error)
	Resize(device, path string) (bool, error)
}

// Node is the node service.
type Node struct {
	csi.UnimplementedNodeServer
	// Name is that of the node.
	Name string
	// Data is the directory of the driver on the node.
	Data string
	// Kubelet is the directory below which requests may name paths.
	Kubelet safepath.Root
	Store   store.Client
	Leases  store.Leases
	Flash   Flash
	Devices Devices
	Mounter *mount.SafeFormatAndMount
	// Bind makes a staged volume appear at the path of a pod.
	Bind    func(source, target string, readOnly bool) error
	Resizer Resizer
	// Server reaches the server at a control socket.
	Server func(socket string) Server
	// Bound is the time limit of an operation, FlushBound that of a flush within it.
	Bound, FlushBound time.Duration

	busy sync.Map
	lost sync.Map
}

// run executes the operation of a volume within the time limit.
func (n *Node) run(ctx context.Context, id string, operation func(context.Context) error) error {
	if _, taken := n.busy.LoadOrStore(id, true); taken {
		return status.Errorf(codes.Aborted, "volume %s: another operation is in progress", id)
	}
	ctx, cancel := context.WithTimeout(ctx, n.Bound)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		err := guarded(ctx, id, operation)
		// Before the answer, so that the next request finds the volume unlocked.
		n.busy.Delete(id)
		done <- err
	}()
	select {
	case err := <-done:
		return reply.Classify(id, err)
	case <-ctx.Done():
		return reply.Classify(id, ctx.Err())
	}
}

// guarded turns a panic of an operation into an error.
func guarded(ctx context.Context, id string, operation func(context.Context) error) (err error) {
	defer func() {
		if cause := recover(); cause != nil {
			klog.Errorf("volume %s: the operation panicked: %v", id, cause)
			err = status.Errorf(codes.Internal, "volume %s: the operation panicked", id)
		}
	}()
	return operation(ctx)
}

// NodeGetInfo states the name of the node, which is also its topology.
func (n *Node) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	return &csi.NodeGetInfoResponse{
		NodeId:             n.Name,
		AccessibleTopology: &csi.Topology{Segments: map[string]string{store.TopologyKey: n.Name}},
	}, nil
}

// NodeGetCapabilities lists what the service can do.
func (n *Node) NodeGetCapabilities(context.Context, *csi.NodeGetCapabilitiesRequest) (*csi.NodeGetCapabilitiesResponse, error) {
	response := new(csi.NodeGetCapabilitiesResponse)
	for _, capability := range []csi.NodeServiceCapability_RPC_Type{
		csi.NodeServiceCapability_RPC_STAGE_UNSTAGE_VOLUME,
		csi.NodeServiceCapability_RPC_GET_VOLUME_STATS,
		csi.NodeServiceCapability_RPC_GET_VOLUME_HEALTH,
		csi.NodeServiceCapability_RPC_EXPAND_VOLUME,
		csi.NodeServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	} {
		response.Capabilities = append(response.Capabilities, &csi.NodeServiceCapability{
			Type: &csi.NodeServiceCapability_Rpc{Rpc: &csi.NodeServiceCapability_RPC{Type: capability}},
		})
	}
	return response, nil
}

// server is the server of a volume under a grant.
func (n *Node) server(id string, generation int64) Server { return n.Server(n.socket(id, generation)) }

// isMounted reports whether something is mounted at the path; a path that does not exist is none.
func (n *Node) isMounted(path string) (bool, error) {
	if exists, err := n.Kubelet.Exists(path); err != nil || !exists {
		return false, err
	}
	mounted, err := n.Mounter.IsMountPoint(path)
	if err != nil {
		return false, fmt.Errorf("%s: cannot be checked for a mount: %w", path, err)
	}
	return mounted, nil
}
