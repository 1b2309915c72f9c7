// SPDX-License-Identifier: MIT OR Apache-2.0

// Package driver is what both plugins have in common: the identity service and the socket.
//
// Invariants: the socket has mode 0600 from its creation, in a directory that only root can write, and a client of another user
// than root and the user of the process is disconnected before a byte of it is read. Secrets are logged nowhere. A panic of a
// handler ends its request, not the process.
//
// Why the kernel's credentials beside the mode: a volume of a pod that contains the kubelet's directory would show the socket to
// processes whose user id is that of its owner in another user namespace.
package driver

import (
	"context"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"larder.dev/csi/internal/store"
)

// Version of the driver; the build sets it.
var Version = "0.1.0"

// Identity is the identity service.
type Identity struct {
	csi.UnimplementedIdentityServer
	// Ready reports why the plugin cannot serve requests, nil if it can.
	Ready func(context.Context) error
}

// GetPluginInfo states name and version.
func (i *Identity) GetPluginInfo(context.Context, *csi.GetPluginInfoRequest) (*csi.GetPluginInfoResponse, error) {
	return &csi.GetPluginInfoResponse{Name: store.DriverName, VendorVersion: Version}, nil
}

// GetPluginCapabilities states what the plugins can do. Volumes are extended while no node holds them.
func (i *Identity) GetPluginCapabilities(context.Context, *csi.GetPluginCapabilitiesRequest) (*csi.GetPluginCapabilitiesResponse, error) {
	service := func(kind csi.PluginCapability_Service_Type) *csi.PluginCapability {
		return &csi.PluginCapability{Type: &csi.PluginCapability_Service_{Service: &csi.PluginCapability_Service{Type: kind}}}
	}
	return &csi.GetPluginCapabilitiesResponse{Capabilities: []*csi.PluginCapability{
		service(csi.PluginCapability_Service_CONTROLLER_SERVICE),
		service(csi.PluginCapability_Service_VOLUME_ACCESSIBILITY_CONSTRAINTS),
		{Type: &csi.PluginCapability_VolumeExpansion_{VolumeExpansion: &csi.PluginCapability_VolumeExpansion{
			Type: csi.PluginCapability_VolumeExpansion_OFFLINE,
		}}},
	}}, nil
}

// Probe reports whether the plugin can serve requests.
func (i *Identity) Probe(ctx context.Context, _ *csi.ProbeRequest) (*csi.ProbeResponse, error) {
	if i.Ready != nil {
		if err := i.Ready(ctx); err != nil {
			return nil, status.Errorf(codes.FailedPrecondition, "%v", err)
		}
	}
	return &csi.ProbeResponse{Ready: wrapperspb.Bool(true)}, nil
}
