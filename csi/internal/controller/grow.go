// SPDX-License-Identifier: MIT OR Apache-2.0

// Extension of volumes, and the capacity of nodes.
//
// Invariant: a volume that a node holds keeps its size, as its server does.

package controller

import (
	"context"
	"fmt"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"larder.dev/csi/internal/reply"
	"larder.dev/csi/internal/settings"
	"larder.dev/csi/internal/store"
)

// ControllerExpandVolume extends the backing claim of a volume that no node holds: a served volume keeps its size.
func (c *Controller) ControllerExpandVolume(ctx context.Context, request *csi.ControllerExpandVolumeRequest) (*csi.ControllerExpandVolumeResponse, error) {
	id, limits := request.GetVolumeId(), request.GetCapacityRange()
	if id == "" || limits == nil {
		return nil, reply.Invalid("volume id or capacity range: missing; accepted: both")
	}
	if err := reply.Identify(id); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.Bound)
	defer cancel()
	volume, err := c.Store.Volume(ctx, id)
	if err != nil {
		return nil, reply.Classify(id, err)
	}
	bytes, err := settings.Bytes(limits.GetRequiredBytes(), limits.GetLimitBytes())
	if err != nil {
		return nil, status.Errorf(codes.OutOfRange, "%v", err)
	}
	response := &csi.ControllerExpandVolumeResponse{CapacityBytes: volume.Spec.CapacityBytes, NodeExpansionRequired: true}
	if bytes <= volume.Spec.CapacityBytes {
		return response, nil
	}
	if volume.Status.Holder != "" || volume.DeletionTimestamp != nil {
		return nil, status.Errorf(codes.FailedPrecondition,
			"volume %s: node %q holds it, or it is being deleted; accepted: a volume that was unstaged, because a served volume keeps its size",
			id, volume.Status.Holder)
	}
	if err := c.extend(ctx, volume, bytes); err != nil {
		return nil, reply.Classify(id, err)
	}
	volume.Spec.CapacityBytes = bytes
	if _, err := c.Store.Update(ctx, volume); err != nil {
		return nil, reply.Classify(id, err)
	}
	response.CapacityBytes = bytes
	return response, nil
}

// extend extends the backing claim. A claim of a block device may need its node for the rest, which happens when the helper pod
// starts.
func (c *Controller) extend(ctx context.Context, volume *store.Volume, bytes int64) error {
	claims := c.Kubernetes.CoreV1().PersistentVolumeClaims(c.Namespace)
	wanted := *resource.NewQuantity(bytes, resource.BinarySI)
	claim, err := claims.Get(ctx, volume.Spec.BackingClaim, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if request := claim.Spec.Resources.Requests[core.ResourceStorage]; request.Cmp(wanted) < 0 {
		claim.Spec.Resources.Requests[core.ResourceStorage] = wanted
		if claim, err = claims.Update(ctx, claim, metav1.UpdateOptions{}); err != nil {
			return err
		}
	}
	for !extended(claim, wanted) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("claim %s/%s is not extended yet; its class must permit it (allowVolumeExpansion): %w", c.Namespace,
				claim.Name, ctx.Err())
		case <-time.After(poll):
		}
		if claim, err = claims.Get(ctx, volume.Spec.BackingClaim, metav1.GetOptions{}); err != nil {
			return err
		}
	}
	return nil
}

func extended(claim *core.PersistentVolumeClaim, wanted resource.Quantity) bool {
	if capacity := claim.Status.Capacity[core.ResourceStorage]; capacity.Cmp(wanted) >= 0 {
		return true
	}
	for _, condition := range claim.Status.Conditions {
		if condition.Type == core.PersistentVolumeClaimFileSystemResizePending && condition.Status == core.ConditionTrue {
			return true
		}
	}
	return false
}

// GetCapacity is the size of the largest volume whose cache fits into the free flash of a node, or of any node without a
// topology. It does not state what the backing class can provide.
func (c *Controller) GetCapacity(ctx context.Context, request *csi.GetCapacityRequest) (*csi.GetCapacityResponse, error) {
	if len(request.GetVolumeCapabilities()) != 0 {
		if err := settings.ParseCapabilities(request.GetVolumeCapabilities()); err != nil {
			return new(csi.GetCapacityResponse), nil
		}
	}
	class := settings.Class{CachePercent: 100}
	if len(request.GetParameters()) != 0 {
		var err error
		if class, err = settings.ParseClass(request.GetParameters()); err != nil {
			return nil, reply.Invalid("%v", err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, c.Bound)
	defer cancel()
	nodes, err := c.Watches.reported(ctx)
	if err != nil {
		return nil, reply.Classify("of no name", err)
	}
	wanted, restricted := request.GetAccessibleTopology().GetSegments()[store.TopologyKey]
	var free int64
	for _, node := range nodes {
		if !restricted || node.Name == wanted {
			free = max(free, node.Status.FlashFreeBytes)
		}
	}
	return &csi.GetCapacityResponse{AvailableCapacity: class.Largest(free)}, nil
}
