// SPDX-License-Identifier: MIT OR Apache-2.0

// What a node of the cluster has: flash, devices and servers in memory, which fail when a test asks for it.

package testrig

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"

	"larder.dev/csi/internal/control"
	"larder.dev/csi/internal/device"
	"larder.dev/csi/internal/flash"
	"larder.dev/csi/internal/node"
)

// Flash is a volume group in memory.
type Flash struct {
	mutex   sync.Mutex
	volumes map[string]flash.Volume
	// Size is that of the group, in bytes.
	Size int64
	// Fail is the error of the next operation with this name.
	Fail map[string]error
	// Created counts how often flash was made.
	Created int
	// Activated is how often flash was activated.
	Activated int
	// At is the directory in which the flash of a volume is a file; without it the path is that of a device.
	At string
}

func newFlash() *Flash {
	return &Flash{volumes: map[string]flash.Volume{}, Size: 1 << 40, Fail: map[string]error{}}
}

func (f *Flash) failed(operation string) error {
	err := f.Fail[operation]
	delete(f.Fail, operation)
	return err
}

// SetFail sets the error of the next operation with this name.
func (f *Flash) SetFail(operation string, err error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.Fail[operation] = err
}

// Path is that of the flash of a volume.
func (f *Flash) Path(id string) string {
	if f.At != "" {
		return filepath.Join(f.At, id)
	}
	return "/dev/flash/" + id
}

// Space is what is free.
func (f *Flash) Space(context.Context) (int64, int64, error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	free := f.Size
	for _, volume := range f.volumes {
		free -= volume.Bytes
	}
	return f.Size, free, nil
}

// List returns the flash of all volumes.
func (f *Flash) List(context.Context) ([]flash.Volume, error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	var all []flash.Volume
	for _, volume := range f.volumes {
		all = append(all, volume)
	}
	return all, nil
}

// Find returns the flash of a volume, or nil.
func (f *Flash) Find(_ context.Context, id string) (*flash.Volume, error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if volume, found := f.volumes[id]; found {
		return &volume, nil
	}
	return nil, nil
}

// Create makes flash without a generation.
func (f *Flash) Create(_ context.Context, id string, bytes int64) error {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if err := f.failed("create"); err != nil {
		return err
	}
	f.volumes[id] = flash.Volume{ID: id, Bytes: bytes}
	f.Created++
	if f.At == "" {
		return nil
	}
	// 64 MiB, whatever is asked for: a test needs no more.
	_ = os.Remove(f.Path(id))
	file, err := os.OpenFile(f.Path(id), os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	return errors.Join(file.Truncate(64<<20), file.Close())
}

// SetGeneration replaces the generation.
func (f *Flash) SetGeneration(_ context.Context, id string, generation int64) error {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if err := f.failed("generation"); err != nil {
		return err
	}
	volume, found := f.volumes[id]
	if !found {
		return errors.New("no such flash")
	}
	volume.Generation = generation
	f.volumes[id] = volume
	return nil
}

// Activate does nothing: flash in memory is always there.
func (f *Flash) Activate(context.Context, string) error {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.Activated++
	return nil
}

// Remove removes flash.
func (f *Flash) Remove(_ context.Context, id string) error {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	delete(f.volumes, id)
	return nil
}

// Devices makes no devices, and counts them.
type Devices struct {
	mutex sync.Mutex
	// Size is that of each device, in bytes.
	Size int64
	// As is the kind of all devices.
	As device.Kind
	// Fail is the error of the next attach.
	Fail error
	// Unreadable is the error of reads.
	Unreadable error
	// Used states that the devices are mounted elsewhere.
	Used     bool
	attached map[string]bool
}

func newDevices() *Devices {
	return &Devices{Size: 1 << 50, As: device.Ublk, attached: map[string]bool{}}
}

// Kind is that of all devices.
func (d *Devices) Kind() device.Kind { return d.As }

// Choose chooses the first number that is not taken.
func (d *Devices) Choose(taken []device.Place) (device.Place, error) {
	place := device.Place{Kind: d.As}
	for _, other := range taken {
		place.Number = max(place.Number, other.Number+1)
	}
	return place, nil
}

// Attach attaches.
func (d *Devices) Attach(_ context.Context, place device.Place, _ []device.Place, _, _ string, _ func(device.Place) error) (device.Place, error) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if err := d.Fail; err != nil {
		d.Fail = nil
		return place, err
	}
	d.attached[place.Path()] = true
	return place, nil
}

// Detach detaches.
func (d *Devices) Detach(_ context.Context, place device.Place) error {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	delete(d.attached, place.Path())
	return nil
}

// Cut cuts nothing: these devices have no connections.
func (d *Devices) Cut(context.Context, func() (device.Place, error), string) (bool, error) {
	return false, nil
}

// Bytes is the size of a device.
func (d *Devices) Bytes(string) (int64, error) { return d.Size, nil }

// Examine fails if a test asks for it.
func (d *Devices) Examine(string, bool) error {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.Unreadable
}

// InUse is what a test asks for.
func (d *Devices) InUse(device.Place) (bool, error) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.Used, nil
}

// Attached is the number of devices that are attached.
func (d *Devices) Attached() int {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return len(d.attached)
}

// Servers are the servers of a machine.
type Servers struct {
	mutex   sync.Mutex
	running map[string]bool
	// Alarm is that of each server, if any.
	Alarm *string
	// FlushFails is the error of each flush, FlushTakes its duration.
	FlushFails error
	FlushTakes time.Duration
	// Flushed counts flushes that succeeded.
	Flushed int
}

func newServers() *Servers { return &Servers{running: map[string]bool{}} }

// Run starts or ends the server of a volume.
func (s *Servers) Run(id string, running bool) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.running[id] = running
}

// Set changes the servers.
func (s *Servers) Set(change func(*Servers)) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	change(s)
}

func (s *Servers) at(socket string) node.Server {
	return server{all: s, id: filepath.Base(filepath.Dir(socket))}
}

type server struct {
	all *Servers
	id  string
}

func (s server) Status(context.Context) (control.Status, error) {
	s.all.mutex.Lock()
	defer s.all.mutex.Unlock()
	if !s.all.running[s.id] {
		return control.Status{}, fmt.Errorf("%s: no server", s.id)
	}
	return control.Status{State: "caching", Name: s.id, Alarm: s.all.Alarm}, nil
}

func (s server) Flush(ctx context.Context, _ time.Duration) error {
	s.all.mutex.Lock()
	running, fails, takes := s.all.running[s.id], s.all.FlushFails, s.all.FlushTakes
	s.all.mutex.Unlock()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(takes):
	}
	if !running {
		return fmt.Errorf("%s: no server", s.id)
	}
	if fails == nil {
		s.all.Set(func(s *Servers) { s.Flushed++ })
	}
	return fails
}

type resizer struct{}

func (resizer) NeedResize(string, string) (bool, error) { return true, nil }
func (resizer) Resize(string, string) (bool, error)     { return true, nil }

// bind records a bind mount.
func (m *Machine) bind(source, target string, readOnly bool) error {
	options := []string{"bind"}
	if readOnly {
		options = append(options, "ro")
	}
	return m.Mounts.Mount(source, target, "", options)
}
