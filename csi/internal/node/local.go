// SPDX-License-Identifier: MIT OR Apache-2.0

// What the node keeps of a volume: a directory with a record, the server's configuration, state and sockets.
//
// Invariant: a file is replaced in one step and durably, so that a crash leaves the old one or the new one. The record is on the
// node and not in the custom resource, since it names devices of this boot.

package node

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"k8s.io/klog/v2"

	"larder.dev/csi/internal/device"
	"larder.dev/csi/internal/settings"
	"larder.dev/csi/internal/store"
)

// The directory of a volume on the node, and where the helper pod has it.
const (
	// VolumesDir is the name of the directory of all volumes in the driver's directory.
	VolumesDir = "volumes"
	// HelperDir is the volume's directory in the helper pod.
	HelperDir = "/run/larder"
	// ConfigFile is the configuration of the server.
	ConfigFile = "larder.toml"
	// OriginFile is the block device of the backing claim; the helper pod makes it.
	OriginFile = "origin"
	stateDir   = "state"
	recordFile = "volume.json"
)

// ControlFile and nbdFile are the sockets of a grant's server. A server of an earlier grant that has not ended has others, so
// that it is not taken for this one.
func ControlFile(generation int64) string { return fmt.Sprintf("control-%d.sock", generation) }
func nbdFile(generation int64) string     { return fmt.Sprintf("nbd-%d.sock", generation) }

// local is what the node keeps of a volume that it holds.
type local struct {
	Generation int64 `json:"generation"`
	WriteBack  bool  `json:"writeBack,omitempty"`
	// WasDirty states that flash may have been dirty before this grant, Used that a client may have written under it.
	WasDirty bool         `json:"wasDirty,omitempty"`
	Used     bool         `json:"used,omitempty"`
	Place    device.Place `json:"place"`
	// Published has the mode of each target path: true if it is read-only.
	Published map[string]bool `json:"published,omitempty"`
}

func (n *Node) dir(id string) string { return filepath.Join(n.Data, VolumesDir, id) }

func (n *Node) socket(id string, generation int64) string {
	return filepath.Join(n.dir(id), ControlFile(generation))
}

// load reads what the node keeps of a volume, nil if there is nothing.
func (n *Node) load(id string) (*local, error) {
	path := filepath.Join(n.dir(id), recordFile)
	text, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	kept := new(local)
	if err := json.Unmarshal(text, kept); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return kept, nil
}

// save stores it durably.
func (n *Node) save(id string, kept *local) error {
	text, err := json.Marshal(kept)
	if err != nil {
		return err
	}
	return n.write(id, recordFile, text)
}

// forget removes it, and the sockets of servers that were killed. The flash and the server's state stay, for a warm start.
func (n *Node) forget(id string) error {
	sockets, err := filepath.Glob(filepath.Join(n.dir(id), "*.sock"))
	if err != nil {
		return err
	}
	for _, socket := range sockets {
		if err := os.Remove(socket); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	err = os.Remove(filepath.Join(n.dir(id), recordFile))
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// clear removes the directory of a volume, with the server's state.
func (n *Node) clear(id string) error { return os.RemoveAll(n.dir(id)) }

// clearState removes the server's state, which belongs to flash that is not used.
func (n *Node) clearState(id string) error { return os.RemoveAll(filepath.Join(n.dir(id), stateDir)) }

// write replaces a file of a volume's directory durably.
func (n *Node) write(id, name string, content []byte) error {
	dir := n.dir(id)
	if err := os.MkdirAll(filepath.Join(dir, stateDir), 0o700); err != nil {
		return err
	}
	temporary := filepath.Join(dir, name+".new")
	file, err := os.OpenFile(temporary, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	err = errors.Join(err, file.Sync(), file.Close())
	if err != nil {
		return err
	}
	if err := os.Rename(temporary, filepath.Join(dir, name)); err != nil {
		return err
	}
	parent, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(parent.Sync(), parent.Close())
}

// known lists the volumes that have a directory.
func (n *Node) known() (map[string]bool, error) {
	all := map[string]bool{}
	entries, err := os.ReadDir(filepath.Join(n.Data, VolumesDir))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return nil, err
	}
	for _, entry := range entries {
		if id := entry.Name(); settings.IsVolumeID(id) {
			all[id] = true
		}
	}
	return all, nil
}

// held lists the volumes of which the node keeps a record. One that cannot be read does not stop the others.
func (n *Node) held() (map[string]*local, error) {
	known, err := n.known()
	if err != nil {
		return nil, err
	}
	all := map[string]*local{}
	for id := range known {
		kept, err := n.load(id)
		switch {
		case err != nil:
			klog.Errorf("ALARM: volume %s: its lease is not renewed: %v", id, err)
		case kept != nil:
			all[id] = kept
		}
	}
	return all, nil
}

// configuration is the file of the server. The values were checked; quoting them again costs nothing.
func (n *Node) configuration(volume *store.Volume, place device.Place) []byte {
	var text strings.Builder
	line := func(key, value string) {
		if value != "" {
			fmt.Fprintf(&text, "%s = %s\n", key, strconv.Quote(value))
		}
	}
	line("drain", "45s")
	line("origin", filepath.Join(HelperDir, OriginFile))
	line("flash", n.Flash.Path(volume.Name))
	line("name", volume.Name)
	fmt.Fprintf(&text, "generation = %d\n", volume.Status.Generation)
	line("listen", place.Listen(filepath.Join(HelperDir, nbdFile(volume.Status.Generation))))
	line("control", filepath.Join(HelperDir, ControlFile(volume.Status.Generation)))
	line("state", filepath.Join(HelperDir, stateDir))
	line("preset", volume.Spec.Preset)
	line("write_policy", volume.Spec.Policy)
	line("flash_write_budget", volume.Spec.WriteBudget)
	return []byte(text.String())
}
