// SPDX-License-Identifier: MIT OR Apache-2.0

// Package controller is the controller service, and the loop that makes the helper pods.
//
// A volume is a claim of the backing class, with volumeMode Block and the access mode ReadWriteOncePod, and a record beside it.
// The helper pod that holds this claim exists only while a node holds the volume: see reconcile.go.
//
// Invariants: a repeated request finds what the earlier one made, because the id is a function of the name. The backing claim
// is deleted only by DeleteVolume, and only while no node holds the volume. The record is made before the claim and deleted
// after it, so that no claim is left without a record.
//
// Why the claim has no owner reference to the record: a record that is deleted by mistake would delete the data.
package controller

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"larder.dev/csi/internal/fence"
	"larder.dev/csi/internal/reply"
	"larder.dev/csi/internal/settings"
	"larder.dev/csi/internal/store"
)

// poll is the interval at which a claim is read while a request waits for it.
const poll = 200 * time.Millisecond

// Controller is the controller service.
type Controller struct {
	csi.UnimplementedControllerServer
	Store      store.Client
	Leases     store.Leases
	Kubernetes kubernetes.Interface
	Namespace  string
	Helper     Helper
	// Bound is the time limit of a request.
	Bound time.Duration
	// Watches are those of the API server.
	Watches *Watches
	// Observer decides that leases have expired.
	Observer fence.Observer
}

// ControllerGetCapabilities lists what the service can do.
func (c *Controller) ControllerGetCapabilities(context.Context, *csi.ControllerGetCapabilitiesRequest) (*csi.ControllerGetCapabilitiesResponse, error) {
	response := new(csi.ControllerGetCapabilitiesResponse)
	for _, capability := range []csi.ControllerServiceCapability_RPC_Type{
		csi.ControllerServiceCapability_RPC_CREATE_DELETE_VOLUME,
		csi.ControllerServiceCapability_RPC_GET_CAPACITY,
		csi.ControllerServiceCapability_RPC_EXPAND_VOLUME,
		csi.ControllerServiceCapability_RPC_SINGLE_NODE_MULTI_WRITER,
	} {
		response.Capabilities = append(response.Capabilities, &csi.ControllerServiceCapability{
			Type: &csi.ControllerServiceCapability_Rpc{Rpc: &csi.ControllerServiceCapability_RPC{Type: capability}},
		})
	}
	return response, nil
}

// CreateVolume makes the record and the backing claim, and waits until the claim is bound.
func (c *Controller) CreateVolume(ctx context.Context, request *csi.CreateVolumeRequest) (*csi.CreateVolumeResponse, error) {
	name := request.GetName()
	if name == "" || len(name) > settings.MostName {
		return nil, reply.Invalid("name: got %d bytes, accepted: 1 to %d", len(name), settings.MostName)
	}
	if err := settings.ParseCapabilities(request.GetVolumeCapabilities()); err != nil {
		return nil, reply.Invalid("%v", err)
	}
	if request.GetVolumeContentSource() != nil {
		return nil, reply.Invalid("volume content source: not supported; accepted: none")
	}
	if len(request.GetMutableParameters()) != 0 {
		return nil, reply.Invalid("mutable parameters: not supported; accepted: none")
	}
	class, err := settings.ParseClass(request.GetParameters())
	if err != nil {
		return nil, reply.Invalid("%v", err)
	}
	limits := request.GetCapacityRange()
	bytes, err := settings.Bytes(limits.GetRequiredBytes(), limits.GetLimitBytes())
	if err != nil {
		return nil, status.Errorf(codes.OutOfRange, "%v", err)
	}
	ctx, cancel := context.WithTimeout(ctx, c.Bound)
	defer cancel()
	wanted := store.VolumeSpec{
		Name: name, BackingClaim: settings.VolumeID(name), BackingStorageClass: class.BackingStorageClass, CapacityBytes: bytes,
		CacheBytes: class.Cache(bytes), Preset: class.Preset, Policy: class.Policy, WriteBudget: class.WriteBudget,
	}
	volume, err := c.record(ctx, wanted)
	if err != nil {
		return nil, reply.Classify(wanted.BackingClaim, err)
	}
	claim, err := c.claim(ctx, volume, selected(request.GetAccessibilityRequirements()))
	if err != nil {
		return nil, reply.Classify(volume.Name, err)
	}
	topology, err := c.topology(ctx, claim)
	if err != nil {
		return nil, reply.Classify(volume.Name, err)
	}
	return &csi.CreateVolumeResponse{Volume: &csi.Volume{
		VolumeId: volume.Name, CapacityBytes: volume.Spec.CapacityBytes, AccessibleTopology: topology,
	}}, nil
}

// backs verifies that a StorageClass can provide origins. One of this driver would claim from itself without an end.
func (c *Controller) backs(ctx context.Context, class string) error {
	found, err := c.Kubernetes.StorageV1().StorageClasses().Get(ctx, class, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		return reply.Invalid("parameter %s: the StorageClass %s does not exist", settings.BackingStorageClass, class)
	case err != nil:
		return err
	case found.Provisioner == store.DriverName:
		return reply.Invalid("parameter %s: the StorageClass %s is one of this driver; accepted: one of another driver",
			settings.BackingStorageClass, class)
	}
	return nil
}

// selected is the node for which the scheduler chose the volume, if it did.
func selected(requirement *csi.TopologyRequirement) string {
	for _, topology := range requirement.GetPreferred() {
		if node := topology.GetSegments()[store.TopologyKey]; settings.IsNodeName(node) {
			return node
		}
	}
	return ""
}

// record makes the record of a volume, or verifies that the one that exists is of the same request.
func (c *Controller) record(ctx context.Context, wanted store.VolumeSpec) (*store.Volume, error) {
	found, err := c.Store.Volume(ctx, wanted.BackingClaim)
	if apierrors.IsNotFound(err) {
		if err := c.backs(ctx, wanted.BackingStorageClass); err != nil {
			return nil, err
		}
		found, err = c.Store.Create(ctx, &store.Volume{
			ObjectMeta: metav1.ObjectMeta{Name: wanted.BackingClaim, Finalizers: []string{store.FlashFinalizer}},
			Spec:       wanted,
		})
		if !apierrors.IsAlreadyExists(err) {
			return found, err
		}
		found, err = c.Store.Volume(ctx, wanted.BackingClaim)
	}
	switch {
	case err != nil:
		return nil, err
	case found.DeletionTimestamp != nil:
		return nil, status.Errorf(codes.Aborted, "volume %s: an earlier volume of this name is being deleted", found.Name)
	case !reflect.DeepEqual(found.Spec, wanted):
		return nil, status.Errorf(codes.AlreadyExists,
			"volume %s: exists with %d bytes and other parameters or another size than were requested", found.Name, found.Spec.CapacityBytes)
	}
	return found, nil
}

// claim makes the backing claim and waits until it is bound.
func (c *Controller) claim(ctx context.Context, volume *store.Volume, node string) (*core.PersistentVolumeClaim, error) {
	claims := c.Kubernetes.CoreV1().PersistentVolumeClaims(c.Namespace)
	if _, err := claims.Create(ctx, backing(volume, c.Namespace, node), metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, err
	}
	for {
		claim, err := claims.Get(ctx, volume.Spec.BackingClaim, metav1.GetOptions{})
		switch {
		case err != nil:
			return nil, err
		case claim.DeletionTimestamp != nil || claim.Labels[store.VolumeLabel] != volume.Name:
			return nil, status.Errorf(codes.Aborted, "claim %s/%s: is being deleted, or is not that of the volume", c.Namespace, claim.Name)
		case claim.Status.Phase == core.ClaimBound:
			return claim, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("claim %s/%s of the class %s is not bound yet: %w", c.Namespace, claim.Name,
				volume.Spec.BackingStorageClass, ctx.Err())
		case <-time.After(poll):
		}
	}
}

// topology is where the backing volume can be used: that of its PersistentVolume.
func (c *Controller) topology(ctx context.Context, claim *core.PersistentVolumeClaim) ([]*csi.Topology, error) {
	if claim.Spec.VolumeName == "" {
		return nil, nil
	}
	backing, err := c.Kubernetes.CoreV1().PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if backing.Spec.NodeAffinity == nil || backing.Spec.NodeAffinity.Required == nil {
		return nil, nil
	}
	var all []*csi.Topology
	for _, term := range backing.Spec.NodeAffinity.Required.NodeSelectorTerms {
		segments := map[string]string{}
		for _, expression := range term.MatchExpressions {
			if expression.Operator != core.NodeSelectorOpIn || len(expression.Values) != 1 {
				return nil, status.Errorf(codes.Internal,
					"PersistentVolume %s: its node affinity has %s %s %v; accepted: terms of labels with one value each", backing.Name,
					expression.Key, expression.Operator, expression.Values)
			}
			segments[expression.Key] = expression.Values[0]
		}
		if len(segments) != 0 {
			all = append(all, &csi.Topology{Segments: segments})
		}
	}
	return all, nil
}

// DeleteVolume deletes a volume that no node holds. Its record stays until the flash on its node is removed.
func (c *Controller) DeleteVolume(ctx context.Context, request *csi.DeleteVolumeRequest) (*csi.DeleteVolumeResponse, error) {
	id := request.GetVolumeId()
	if err := reply.Identify(id); err != nil {
		if status.Code(err) == codes.NotFound {
			return new(csi.DeleteVolumeResponse), nil
		}
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, c.Bound)
	defer cancel()
	volume, err := c.Store.Volume(ctx, id)
	if apierrors.IsNotFound(err) {
		// An earlier request may have been interrupted after it deleted the record.
		if err := c.deleteClaim(ctx, id); err != nil {
			return nil, reply.Classify(id, err)
		}
		return new(csi.DeleteVolumeResponse), nil
	}
	if err != nil {
		return nil, reply.Classify(id, err)
	}
	if volume.Status.Holder != "" {
		return nil, status.Errorf(codes.FailedPrecondition, "volume %s: node %s holds it; accepted: a volume that was unstaged", id,
			volume.Status.Holder)
	}
	// The record first: from here on no node is granted the volume. It is a conflict if a node took it meanwhile.
	if err := c.Store.Delete(ctx, volume); err != nil {
		return nil, reply.Classify(id, err)
	}
	if err := c.deleteClaim(ctx, id); err != nil {
		return nil, reply.Classify(id, err)
	}
	return new(csi.DeleteVolumeResponse), nil
}

// deleteClaim deletes the backing claim of a volume, which has the volume's name and label.
func (c *Controller) deleteClaim(ctx context.Context, id string) error {
	claims := c.Kubernetes.CoreV1().PersistentVolumeClaims(c.Namespace)
	claim, err := claims.Get(ctx, id, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if claim.Labels[store.VolumeLabel] != id {
		return fmt.Errorf("claim %s/%s: has no label %s=%s; accepted: the backing claim of the volume", c.Namespace, id, store.VolumeLabel, id)
	}
	err = claims.Delete(ctx, id, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &claim.UID}})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// ValidateVolumeCapabilities states whether a volume can be used as a request wants to.
func (c *Controller) ValidateVolumeCapabilities(ctx context.Context, request *csi.ValidateVolumeCapabilitiesRequest) (*csi.ValidateVolumeCapabilitiesResponse, error) {
	if request.GetVolumeId() == "" || len(request.GetVolumeCapabilities()) == 0 {
		return nil, reply.Invalid("volume id or volume capabilities: missing; accepted: both")
	}
	if err := reply.Identify(request.GetVolumeId()); err != nil {
		return nil, err
	}
	if _, err := c.Store.Volume(ctx, request.GetVolumeId()); err != nil {
		return nil, reply.Classify(request.GetVolumeId(), err)
	}
	if err := settings.ParseCapabilities(request.GetVolumeCapabilities()); err != nil {
		return &csi.ValidateVolumeCapabilitiesResponse{Message: err.Error()}, nil
	}
	return &csi.ValidateVolumeCapabilitiesResponse{Confirmed: &csi.ValidateVolumeCapabilitiesResponse_Confirmed{
		VolumeContext: request.GetVolumeContext(), VolumeCapabilities: request.GetVolumeCapabilities(), Parameters: request.GetParameters(),
	}}, nil
}
