// SPDX-License-Identifier: MIT OR Apache-2.0

// The requests of a kubelet and of the provisioner, over the sockets of the plugins.

package lab

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"larder.dev/csi/internal/settings"
)

// bound is the time limit of a request to the node plugin, and that of its client is longer.
const bound = 30 * time.Second

type calls struct {
	nodes      csi.NodeClient
	identity   csi.IdentityClient
	controller csi.ControllerClient
}

func dial(l *lab) calls {
	l.t.Helper()
	connect := func(address string) *grpc.ClientConn {
		connection, err := grpc.NewClient(address, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Second}))
		l.quietly(address, err)
		l.t.Cleanup(func() { connection.Close() })
		return connection
	}
	node := connect("unix://" + pluginDir + "/csi.sock")
	return calls{
		nodes: csi.NewNodeClient(node), identity: csi.NewIdentityClient(node),
		controller: csi.NewControllerClient(connect("passthrough:///" + os.Getenv("CONTROLLER"))),
	}
}

func limited() (context.Context, context.CancelFunc) {
	return context.WithTimeout(background, bound+10*time.Second)
}

// probe waits for the plugin, whose socket may not exist yet.
func (c calls) probe() error {
	ctx, cancel := context.WithTimeout(background, 20*time.Second)
	defer cancel()
	_, err := c.identity.Probe(ctx, new(csi.ProbeRequest), grpc.WaitForReady(true))
	return err
}

// volume is a volume as a pod uses it.
type volume struct {
	l          *lab
	id         string
	name       string
	backing    string
	fileSystem string // empty: raw block device
	bytes      int64
	parameters map[string]string
	readOnly   bool // of publish requests
}

func (v *volume) String() string {
	if v.fileSystem == "" {
		return v.name + " (block)"
	}
	return v.name + " (" + v.fileSystem + ")"
}

// newVolume is a volume whose backing device is /dev/lab/BACKING.
func (l *lab) newVolume(name, backing, fileSystem string, megabytes int64) *volume {
	return &volume{
		l: l, id: settings.VolumeID(name), name: name, backing: backing, fileSystem: fileSystem, bytes: megabytes << 20,
		parameters: map[string]string{"backingStorageClass": backingClass, "cacheSize": "128Mi"},
	}
}

func (v *volume) capability() *csi.VolumeCapability {
	capability := &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csi.VolumeCapability_Block{Block: new(csi.VolumeCapability_BlockVolume)},
	}
	if v.fileSystem != "" {
		capability.AccessType = &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: v.fileSystem}}
	}
	return capability
}

// The paths of the kubelet for a volume.
func (v *volume) staging() string { return filepath.Join(kubeletDir, "plugins", "staging", v.id) }
func (v *volume) target() string  { return filepath.Join(kubeletDir, "pods", v.id, "target") }

// content is where a pod finds the data of the volume.
func (v *volume) content() string {
	if v.fileSystem == "" {
		return v.target()
	}
	return filepath.Join(v.target(), "data")
}

func (v *volume) create() error {
	ctx, cancel := limited()
	defer cancel()
	got, err := v.l.calls.controller.CreateVolume(ctx, &csi.CreateVolumeRequest{
		Name: v.name, Parameters: v.parameters, VolumeCapabilities: []*csi.VolumeCapability{v.capability()},
		CapacityRange: &csi.CapacityRange{RequiredBytes: v.bytes},
	})
	if err == nil && got.GetVolume().GetVolumeId() != v.id {
		err = fmt.Errorf("the id is %s, expected %s", got.GetVolume().GetVolumeId(), v.id)
	}
	return err
}

func (v *volume) stage(ctx context.Context) error {
	if err := os.MkdirAll(v.staging(), 0o750); err != nil {
		return err
	}
	_, err := v.l.calls.nodes.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
		VolumeId: v.id, StagingTargetPath: v.staging(), VolumeCapability: v.capability(),
	}, grpc.WaitForReady(true))
	return err
}

func (v *volume) publish(ctx context.Context) error {
	if err := os.MkdirAll(filepath.Dir(v.target()), 0o750); err != nil {
		return err
	}
	_, err := v.l.calls.nodes.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
		VolumeId: v.id, StagingTargetPath: v.staging(), TargetPath: v.target(), VolumeCapability: v.capability(),
		Readonly: v.readOnly,
	}, grpc.WaitForReady(true))
	return err
}

func (v *volume) unpublish(ctx context.Context) error {
	_, err := v.l.calls.nodes.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: v.id, TargetPath: v.target()},
		grpc.WaitForReady(true))
	return err
}

func (v *volume) unstage(ctx context.Context) error {
	_, err := v.l.calls.nodes.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: v.id, StagingTargetPath: v.staging()},
		grpc.WaitForReady(true))
	if err == nil {
		_ = os.Remove(v.staging())
	}
	return err
}

func (v *volume) delete(ctx context.Context) error {
	_, err := v.l.calls.controller.DeleteVolume(ctx, &csi.DeleteVolumeRequest{VolumeId: v.id})
	return err
}

// health are the reasons that the node reports.
func (v *volume) health() (map[string]string, error) {
	ctx, cancel := limited()
	defer cancel()
	got, err := v.l.calls.nodes.NodeGetVolumeHealth(ctx, &csi.NodeGetVolumeHealthRequest{VolumeId: v.id})
	reasons := map[string]string{}
	for _, entry := range got.GetVolumeHealth().GetHealthStatuses() {
		reasons[entry.GetReason()] = entry.GetMessage()
	}
	return reasons, err
}

// step is one request of the sequence.
type step struct {
	name string
	call func(*volume, context.Context) error
}

var (
	stageStep     = step{"stage", (*volume).stage}
	publishStep   = step{"publish", (*volume).publish}
	unpublishStep = step{"unpublish", (*volume).unpublish}
	unstageStep   = step{"unstage", (*volume).unstage}
	deleteStep    = step{"delete", (*volume).delete}
)

// once sends a request as a kubelet does: it is repeated while another operation is in progress, or a time limit ended it.
func (s step) once(v *volume) error { return s.repeatedly(v, 3*bound) }

// repeatedly does so for at most this time.
func (s step) repeatedly(v *volume, most time.Duration) error {
	return eventually(most, func() error {
		ctx, cancel := limited()
		defer cancel()
		err := s.call(v, ctx)
		switch status.Code(err) {
		case codes.OK, codes.Aborted, codes.DeadlineExceeded, codes.Unavailable:
			return err
		}
		return &final{err}
	})
}

// twice sends it again after it has succeeded.
func (s step) twice(v *volume) error {
	if err := s.once(v); err != nil {
		return err
	}
	if err := s.once(v); err != nil {
		return fmt.Errorf("repeated: %w", err)
	}
	return nil
}

// final is an error that is not waited for.
type final struct{ error }

func (f *final) Unwrap() error { return f.error }
