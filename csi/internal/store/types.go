// SPDX-License-Identifier: MIT OR Apache-2.0

// Package store has the custom resources of the driver and the calls that read and change them.
//
// A LarderVolume is the record of a volume beside its PersistentVolume. It is in the namespace of the driver, as are the
// backing claim, the helper pod and the lease of the same name. A LarderNode is what a node reports about its flash.
//
// Invariants: the status of a volume is changed only with the resource version that was read (UpdateStatus), so that two
// parties never both take a volume. A volume whose flash is on a node has the finalizer FlashFinalizer, until the node has
// removed this flash.
//
// Why a dynamic client and not generated ones: two small types and five calls.
package store

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"larder.dev/csi/internal/fence"
)

// Names of the driver, its custom resources and its labels.
const (
	DriverName = "csi.larder.dev"
	Group      = "larder.dev"
	Version    = "v1alpha1"
	// VolumeLabel on claims and pods names the volume.
	VolumeLabel = "larder.dev/volume"
	// GenerationLabel on helper pods names the grant.
	GenerationLabel = "larder.dev/generation"
	// TopologyKey is the label of nodes that the node plugin reports.
	TopologyKey = "topology.larder.dev/node"
	// FlashFinalizer keeps the record of a deleted volume until its flash is removed.
	FlashFinalizer = "larder.dev/flash"
)

// The resources.
var (
	VolumeResource = schema.GroupVersionResource{Group: Group, Version: Version, Resource: "lardervolumes"}
	NodeResource   = schema.GroupVersionResource{Group: Group, Version: Version, Resource: "lardernodes"}
)

// Kinds lists the resources with the kinds of their lists, for a fake client.
var Kinds = map[schema.GroupVersionResource]string{VolumeResource: "LarderVolumeList", NodeResource: "LarderNodeList"}

// VolumeSpec is what was asked for.
type VolumeSpec struct {
	// Name is that of the request, which is part of the volume's identity.
	Name string `json:"name"`
	// BackingClaim is the claim of the origin.
	BackingClaim        string `json:"backingClaim"`
	BackingStorageClass string `json:"backingStorageClass"`
	CapacityBytes       int64  `json:"capacityBytes"`
	// CacheBytes is the size of the flash.
	CacheBytes  int64  `json:"cacheBytes"`
	Preset      string `json:"preset"`
	Policy      string `json:"policy,omitempty"`
	WriteBudget string `json:"writeBudget,omitempty"`
}

// Volume is a LarderVolume.
type Volume struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              VolumeSpec   `json:"spec"`
	Status            fence.Record `json:"status,omitempty"`
}

// NodeStatus is what a node reports.
type NodeStatus struct {
	// FlashBytes and FlashFreeBytes are those of the volume group.
	FlashBytes     int64 `json:"flashBytes"`
	FlashFreeBytes int64 `json:"flashFreeBytes"`
	// Device is how volumes become block devices on the node: ublk or nbd.
	Device string `json:"device"`
}

// Node is a LarderNode.
type Node struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Status            NodeStatus `json:"status,omitempty"`
}

// HasFinalizer reports whether the volume's flash still has to be removed after a deletion.
func (v *Volume) HasFinalizer() bool {
	for _, finalizer := range v.Finalizers {
		if finalizer == FlashFinalizer {
			return true
		}
	}
	return false
}
