// SPDX-License-Identifier: MIT OR Apache-2.0

// Statistics, health and extension of a volume on its node.
//
// Invariant: a path is measured only while the volume is mounted there, so that the file system below is never measured for it.

package node

import (
	"context"
	"os"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"larder.dev/csi/internal/control"
	"larder.dev/csi/internal/reply"
)

// NodeGetVolumeStats measures the file system or the device at a path.
func (n *Node) NodeGetVolumeStats(ctx context.Context, request *csi.NodeGetVolumeStatsRequest) (*csi.NodeGetVolumeStatsResponse, error) {
	path, response := request.GetVolumePath(), new(csi.NodeGetVolumeStatsResponse)
	err := n.at(ctx, request.GetVolumeId(), path, func(kept *local) error {
		usage, err := n.usage(path, kept)
		response.Usage = usage
		return err
	})
	if err != nil {
		return nil, err
	}
	return response, nil
}

// at runs an operation on a volume that is mounted at a path.
func (n *Node) at(ctx context.Context, id, path string, operation func(*local) error) error {
	if id == "" || path == "" {
		return reply.Invalid("volume id or volume path: missing; accepted: both")
	}
	if err := reply.Identify(id); err != nil {
		return err
	}
	return n.run(ctx, id, func(context.Context) error {
		kept, err := n.load(id)
		if err != nil {
			return err
		}
		mounted, err := n.isMounted(path)
		if err != nil || kept == nil || !mounted {
			return status.Errorf(codes.NotFound, "volume %s: is not at %.128q on this node", id, path)
		}
		return operation(kept)
	})
}

func (n *Node) usage(path string, kept *local) ([]*csi.VolumeUsage, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		bytes, err := n.Devices.Bytes(kept.Place.Path())
		return []*csi.VolumeUsage{{Unit: csi.VolumeUsage_BYTES, Total: bytes}}, err
	}
	var stat unix.Statfs_t
	if err := unix.Statfs(path, &stat); err != nil {
		return nil, &os.PathError{Op: "statfs", Path: path, Err: err}
	}
	block := stat.Bsize
	return []*csi.VolumeUsage{
		{
			Unit:      csi.VolumeUsage_BYTES,
			Total:     int64(stat.Blocks) * block,
			Available: int64(stat.Bavail) * block,
			Used:      int64(stat.Blocks-stat.Bfree) * block,
		},
		{
			Unit:      csi.VolumeUsage_INODES,
			Total:     int64(stat.Files),
			Available: int64(stat.Ffree),
			Used:      int64(stat.Files - stat.Ffree),
		},
	}, nil
}

// NodeGetVolumeHealth reports the alarms of the server. It does not take the volume's lock: a volume that hangs is asked too.
func (n *Node) NodeGetVolumeHealth(ctx context.Context, request *csi.NodeGetVolumeHealthRequest) (*csi.NodeGetVolumeHealthResponse, error) {
	id := request.GetVolumeId()
	if err := reply.Identify(id); err != nil {
		return nil, err
	}
	kept, err := n.load(id)
	if err != nil {
		return nil, reply.Classify(id, err)
	}
	if kept == nil {
		return nil, status.Errorf(codes.NotFound, "volume %s: is not on this node", id)
	}
	health := &csi.VolumeHealth{VolumeId: id}
	if why, lost := n.lost.Load(id); lost {
		health.HealthStatuses = append(health.HealthStatuses, entry(csi.VolumeHealthErrorType_INACCESSIBLE, "Fenced", why.(string)))
	}
	got, err := n.server(id, kept.Generation).Status(ctx)
	if err != nil {
		health.HealthStatuses = append(health.HealthStatuses,
			entry(csi.VolumeHealthErrorType_INACCESSIBLE, "ServerUnreachable", err.Error()))
	} else if found := alarm(got); found != nil {
		health.HealthStatuses = append(health.HealthStatuses, found)
	}
	return &csi.NodeGetVolumeHealthResponse{VolumeHealth: health}, nil
}

func entry(kind csi.VolumeHealthErrorType, reason, message string) *csi.VolumeHealth_VolumeHealthEntry {
	return &csi.VolumeHealth_VolumeHealthEntry{Status: kind, Reason: reason, Message: message}
}

// alarms are the beginnings of the server's alarms, as docs/operations.md lists them.
var alarms = []struct {
	text   string
	kind   csi.VolumeHealthErrorType
	reason string
}{
	{"the origin could not flush", csi.VolumeHealthErrorType_DATA_LOSS, "OriginFlushFailed"},
	{"the origin's server had acknowledged writes", csi.VolumeHealthErrorType_DATA_LOSS, "OriginLostWrites"},
	{"the origin was missing", csi.VolumeHealthErrorType_INACCESSIBLE, "OriginMissing"},
	{"the origin does not answer", csi.VolumeHealthErrorType_INACCESSIBLE, "OriginHangs"},
	{"flash I/O error; dirty data is at risk", csi.VolumeHealthErrorType_INACCESSIBLE, "DirtyFlashFailed"},
	{"the origin refuses dirty data", csi.VolumeHealthErrorType_DEGRADED, "WriteBackRefused"},
	{"flash ", csi.VolumeHealthErrorType_DEGRADED, "FlashFailed"},
}

// alarm is what a state means for the volume, nil if nothing is wrong.
func alarm(got control.Status) *csi.VolumeHealth_VolumeHealthEntry {
	if got.Alarm == nil {
		switch got.State {
		case "suspended", "failed", "pass-through":
			return entry(csi.VolumeHealthErrorType_DEGRADED, "WithoutFlash", "state "+got.State+": "+got.Advice)
		}
		return nil
	}
	for _, known := range alarms {
		if strings.HasPrefix(*got.Alarm, known.text) {
			return entry(known.kind, known.reason, *got.Alarm)
		}
	}
	return entry(csi.VolumeHealthErrorType_DEGRADED, "Alarm", *got.Alarm)
}

// NodeExpandVolume extends the file system to its device, which has the new size once the volume was staged again.
func (n *Node) NodeExpandVolume(ctx context.Context, request *csi.NodeExpandVolumeRequest) (*csi.NodeExpandVolumeResponse, error) {
	path, response := request.GetVolumePath(), new(csi.NodeExpandVolumeResponse)
	err := n.at(ctx, request.GetVolumeId(), path, func(kept *local) error {
		source := kept.Place.Path()
		bytes, err := n.Devices.Bytes(source)
		if err != nil {
			return err
		}
		if required := request.GetCapacityRange().GetRequiredBytes(); bytes < required {
			return status.Errorf(codes.FailedPrecondition,
				"volume %s: %s has %d bytes, %d are required; a served volume keeps its size until it is staged again",
				request.GetVolumeId(), source, bytes, required)
		}
		response.CapacityBytes = bytes
		info, err := os.Stat(path)
		if err != nil || !info.IsDir() {
			return err
		}
		return n.extend(source, path)
	})
	if err != nil {
		return nil, err
	}
	return response, nil
}
