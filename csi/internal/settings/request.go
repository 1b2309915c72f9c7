// SPDX-License-Identifier: MIT OR Apache-2.0

// Names, ids and capabilities of requests.
//
// Invariant: what is accepted is listed; everything else is refused.

package settings

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"regexp"
	"strings"

	"github.com/container-storage-interface/spec/lib/go/csi"
)

// MostName is the longest name or id that a request may have, in bytes. The specification asks for 128.
const MostName = 128

var (
	volumeID = regexp.MustCompile(`^larder-[0-9a-f]{32}$`)
	option   = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.=:+-]{0,127}$`)
	dnsName  = regexp.MustCompile(`^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$`)
	lvmName  = regexp.MustCompile(`^[A-Za-z0-9_+][A-Za-z0-9_+.-]{0,63}$`)
)

// VolumeID is the id of the volume that a request names. It is a function of the name, so that a repeated request finds its
// volume, and it is a valid name of an object, a directory and a logical volume whatever the name contains.
func VolumeID(name string) string {
	sum := sha256.Sum256([]byte(name))
	return "larder-" + hex.EncodeToString(sum[:16])
}

// IsVolumeID reports whether this driver makes such ids. Only these are used in paths and names.
func IsVolumeID(id string) bool { return volumeID.MatchString(id) }

// IsNodeName reports whether this can be the name of a node.
func IsNodeName(name string) bool { return dnsName.MatchString(name) }

// IsGroupName reports whether this can be the name of an LVM volume group.
func IsGroupName(name string) bool { return lvmName.MatchString(name) && name != "." && name != ".." }

// fileSystems are those that the node formats and extends.
var fileSystems = map[string]bool{"ext4": true, "xfs": true}

// Mode is how a volume is used.
type Mode struct {
	// Block states that the volume is a raw block device.
	Block bool
	// FileSystem is ext4 or xfs, empty for a block device.
	FileSystem string
	// Options are those of the mount.
	Options []string
	// ReadOnly states that the access mode permits no writes.
	ReadOnly bool
	// OnePod states that one target path is permitted at a time.
	OnePod bool
}

// ParseCapability reads a capability of a volume.
func ParseCapability(capability *csi.VolumeCapability) (Mode, error) {
	var mode Mode
	switch access := capability.GetAccessMode().GetMode(); access {
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER, csi.VolumeCapability_AccessMode_SINGLE_NODE_MULTI_WRITER:
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_SINGLE_WRITER:
		mode.OnePod = true
	case csi.VolumeCapability_AccessMode_SINGLE_NODE_READER_ONLY:
		mode.ReadOnly = true
	default:
		return Mode{}, fmt.Errorf("access mode %s: a volume is served by one node; accepted: ReadWriteOnce, ReadWriteOncePod", access)
	}
	switch {
	case capability.GetBlock() != nil:
		mode.Block = true
	case capability.GetMount() != nil:
		mode.FileSystem = capability.GetMount().GetFsType()
		if mode.FileSystem == "" {
			mode.FileSystem = "ext4"
		}
		if !fileSystems[mode.FileSystem] {
			return Mode{}, fmt.Errorf("file system: got %.32q, accepted %s", mode.FileSystem, strings.Join(keys(fileSystems), ", "))
		}
		if capability.GetMount().GetVolumeMountGroup() != "" {
			return Mode{}, fmt.Errorf("volume mount group: not supported; accepted: none, and fsGroup of the pod")
		}
		if err := mode.mountOptions(capability.GetMount().GetMountFlags()); err != nil {
			return Mode{}, err
		}
	default:
		return Mode{}, fmt.Errorf("access type: missing; accepted: block, mount")
	}
	return mode, nil
}

// refusedOptions would make mount do something else than to mount the volume's device at its path.
var refusedOptions = map[string]bool{
	"bind": true, "rbind": true, "move": true, "remount": true, "loop": true, "shared": true, "rshared": true, "slave": true,
	"rslave": true, "private": true, "rprivate": true, "unbindable": true, "runbindable": true, "suid": true, "dev": true,
}

func (m *Mode) mountOptions(flags []string) error {
	if len(flags) > 32 {
		return fmt.Errorf("mount options: got %d, accepted: at most 32", len(flags))
	}
	for _, flag := range flags {
		name, _, _ := strings.Cut(flag, "=")
		if !option.MatchString(flag) || refusedOptions[name] || strings.HasPrefix(name, "x-") {
			return fmt.Errorf("mount option %.64q: not accepted; accepted: options of the file system, such as noatime", flag)
		}
	}
	m.Options = append([]string(nil), flags...)
	return nil
}

// ParseCapabilities checks the capabilities of a request: each is supported, and none is missing.
func ParseCapabilities(capabilities []*csi.VolumeCapability) error {
	if len(capabilities) == 0 {
		return fmt.Errorf("volume capabilities: missing; accepted: at least one")
	}
	for _, capability := range capabilities {
		if _, err := ParseCapability(capability); err != nil {
			return err
		}
	}
	return nil
}
