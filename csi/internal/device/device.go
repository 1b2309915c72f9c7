// SPDX-License-Identifier: MIT OR Apache-2.0

// Package device makes a block device of a volume that a server serves on this node.
//
// With ublk the server makes the device itself: the driver chooses its number and waits for it. With NBD the driver connects a
// device of the kernel to the server's socket. ublk is used where the node has it: its device survives a crash of the server,
// and a device of NBD returns errors.
//
// Invariants: a device is recorded before it is connected, with the boot in which it was, so that a repeated request finds it
// and a device of another boot is not taken for it. One connection is made or cut at a time.
//
// Why nbd-client and not netlink calls: it negotiates with the server and leaves the connection to the kernel.
package device

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	utilexec "k8s.io/utils/exec"
)

// Kind is how a volume becomes a block device.
type Kind string

// The kinds.
const (
	Ublk Kind = "ublk"
	NBD  Kind = "nbd"
)

// most is the number of device numbers that are tried.
const most = 1024

// Place is the device of a volume, as it is recorded on the node.
type Place struct {
	Kind Kind `json:"kind"`
	// Number is that of /dev/ublkbN or /dev/nbdN; -1: none yet.
	Number int `json:"number"`
	// Boot is the boot in which a device of NBD was connected.
	Boot string `json:"boot,omitempty"`
	// Server identifies the server to which it was connected: the time at which its socket was made.
	Server int64 `json:"server,omitempty"`
}

// Path is that of the block device.
func (p Place) Path() string {
	if p.Kind == Ublk {
		return "/dev/ublkb" + strconv.Itoa(p.Number)
	}
	return "/dev/nbd" + strconv.Itoa(p.Number)
}

// Manager makes devices on a node.
type Manager struct {
	Exec utilexec.Interface
	// Root is / except in tests.
	Root  string
	mutex sync.Mutex
	// ended are the devices whose connection was cut.
	ended map[Place]bool
}

func (m *Manager) at(path string) string { return filepath.Join(m.Root, path) }

func (m *Manager) exists(path string) bool {
	_, err := os.Stat(m.at(path))
	return err == nil
}

// Kind is the one that the node supports best.
func (m *Manager) Kind() Kind {
	if m.exists("/dev/ublk-control") {
		return Ublk
	}
	return NBD
}

// Choose is a place for a volume; taken are the places of the other volumes of this node.
func (m *Manager) Choose(taken []Place) (Place, error) {
	if m.Kind() == NBD {
		return Place{Kind: NBD, Number: -1}, nil
	}
	used := map[int]bool{}
	for _, place := range taken {
		if place.Kind == Ublk {
			used[place.Number] = true
		}
	}
	for number := range most {
		if !used[number] && !m.exists("/dev/ublkc"+strconv.Itoa(number)) {
			return Place{Kind: Ublk, Number: number}, nil
		}
	}
	return Place{}, fmt.Errorf("ublk: %d devices are in use on this node; accepted: at most that many", most)
}

// Listen is the listener of the server, as its configuration names it.
func (p Place) Listen(socket string) string {
	if p.Kind == Ublk {
		return "ublk:" + strconv.Itoa(p.Number)
	}
	return "nbd+unix:" + socket
}

// Boot is the id of this boot of the node.
func (m *Manager) Boot() (string, error) {
	id, err := os.ReadFile(m.at("/proc/sys/kernel/random/boot_id"))
	if err != nil {
		return "", fmt.Errorf("boot of the node: %w", err)
	}
	return strings.TrimSpace(string(id)), nil
}

// isHere reports whether a device of NBD was connected in this boot, and still is.
func (m *Manager) isHere(place Place) (bool, error) {
	boot, err := m.Boot()
	return err == nil && place.Boot == boot && m.connected(place.Number), err
}

// connected reports whether the device of NBD is connected to a server.
func (m *Manager) connected(number int) bool {
	return number >= 0 && m.exists(fmt.Sprintf("/sys/block/nbd%d/pid", number))
}

// Attach makes the device and returns its place. Socket is the server's listener for NBD; taken are the places that the other
// volumes of this node have recorded, and record stores a place durably.
func (m *Manager) Attach(ctx context.Context, place Place, taken []Place, name, socket string, record func(Place) error) (Place, error) {
	if place.Kind == Ublk {
		return place, m.wait(ctx, place.Path())
	}
	boot, err := m.Boot()
	if err != nil {
		return place, err
	}
	if place.Boot == boot && m.connected(place.Number) {
		lost, err := m.lost(ctx, place.Path())
		if err != nil || !lost {
			return place, err
		}
		// Under its number, which no other volume takes while it is recorded.
		m.mutex.Lock()
		defer m.mutex.Unlock()
		if err := m.disconnect(ctx, place); err != nil {
			return place, err
		}
		return m.connect(ctx, place, name, socket, record)
	}
	// A number that is recorded may be disconnected by a repeated request of its volume.
	recorded := map[int]bool{}
	for _, other := range taken {
		recorded[other.Number] = recorded[other.Number] || (other.Kind == NBD && other.Boot == boot)
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for number := range most {
		switch {
		case recorded[number]:
			continue
		case !m.exists("/sys/block/nbd" + strconv.Itoa(number)):
			return place, fmt.Errorf("nbd: no free device on this node; accepted: load the module nbd with a larger nbds_max")
		case m.connected(number):
			continue
		}
		return m.connect(ctx, Place{Kind: NBD, Number: number, Boot: boot}, name, socket, record)
	}
	return place, fmt.Errorf("nbd: %d devices are in use on this node", most)
}

// connect connects a device of NBD to a server, after it was recorded.
func (m *Manager) connect(ctx context.Context, place Place, name, socket string, record func(Place) error) (Place, error) {
	var err error
	if place.Server, err = m.server(socket); err != nil {
		return place, err
	}
	if err := record(place); err != nil {
		return place, err
	}
	if err := m.run(ctx, "nbd-client", "-unix", socket, "-name", name, place.Path()); err != nil {
		return place, err
	}
	server, err := m.server(socket)
	if err == nil && server != place.Server {
		// Its record is that of the former server, so that it would be cut.
		err = errors.Join(fmt.Errorf("%s: its server was replaced meanwhile", socket), m.disconnect(ctx, place))
	}
	if err != nil {
		return place, err
	}
	return place, m.wait(ctx, place.Path())
}

// server identifies the server that listens at a socket, 0 if there is none.
func (m *Manager) server(socket string) (int64, error) {
	info, err := os.Stat(m.at(socket))
	if errors.Is(err, os.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	return info.ModTime().UnixNano(), nil
}

// Cut ends the connection of a device of NBD to a server that has ended, and reports whether it did. The kernel would keep the
// requests that this server had not answered for ever, and with them their programs and an unmount; they get I/O errors instead.
// Load reads the place as it is recorded.
func (m *Manager) Cut(ctx context.Context, load func() (Place, error), socket string) (bool, error) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	place, err := load()
	if err != nil || place.Kind != NBD {
		return false, err
	}
	server, err := m.server(socket)
	if err != nil || server == 0 || server == place.Server || m.ended[place] {
		return false, err
	}
	if here, err := m.isHere(place); err != nil || !here {
		return false, err
	}
	// A device that is in use stays until it is closed, so that this would be repeated.
	if m.ended == nil {
		m.ended = map[Place]bool{}
	}
	m.ended[place] = true
	return true, m.run(ctx, "nbd-client", "-d", place.Path())
}

// disconnect ends the connection, and waits until the kernel has released the device.
func (m *Manager) disconnect(ctx context.Context, place Place) error {
	if err := m.run(ctx, "nbd-client", "-d", place.Path()); err != nil {
		return err
	}
	for m.connected(place.Number) {
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: is still connected; accepted: after its users have closed it: %w", place.Path(), ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil
}

// Detach ends the device. That of ublk ends with its server.
func (m *Manager) Detach(ctx context.Context, place Place) error {
	if place.Kind == Ublk {
		return nil
	}
	if here, err := m.isHere(place); err != nil || !here {
		return err
	}
	return m.disconnect(ctx, place)
}

// wait waits until the block device exists.
func (m *Manager) wait(ctx context.Context, path string) error {
	for {
		info, err := os.Stat(m.at(path))
		if err == nil && (info.Mode()&os.ModeDevice != 0 || m.Root != "/") {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: the block device did not appear: %w", path, ctx.Err())
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func (m *Manager) run(ctx context.Context, program string, args ...string) error {
	output, err := m.Exec.CommandContext(ctx, program, args...).CombinedOutput()
	if err == nil {
		return nil
	}
	if ctx.Err() != nil {
		err = ctx.Err()
	}
	text := strings.ReplaceAll(strings.TrimSpace(string(output)), "\n", "; ")
	return fmt.Errorf("%s %s: %w: %.512s", program, strings.Join(args, " "), err, text)
}

// Bytes is the size of a block device.
func (m *Manager) Bytes(path string) (int64, error) {
	file, err := os.Open(m.at(path))
	if err != nil {
		return 0, err
	}
	defer file.Close()
	size, err := file.Seek(0, io.SeekEnd)
	if err != nil {
		return 0, errors.Join(fmt.Errorf("%s: its size cannot be read", path), err)
	}
	return size, nil
}
