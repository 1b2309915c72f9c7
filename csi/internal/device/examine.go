// SPDX-License-Identifier: MIT OR Apache-2.0

// What the beginning of a block device states about its server and its file system.
//
// Invariant: a device is formatted only after a successful read of its beginning. blkid reports a device that returns errors as
// one without a file system, and mkfs would be next.

package device

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// examined is what is read, in bytes. The superblocks of ext4 and xfs lie within it.
const examined = 64 << 10

// The superblock of xfs: its magic, and the byte that mkfs.xfs clears at its end.
const (
	xfsMagic      = "XFSB"
	xfsInProgress = 126
)

// Examine reads the beginning of a device before it is formatted or mounted. What an interrupted mkfs.xfs left is erased, unless
// nothing may be written: blkid takes it for a file system, and nothing can mount it. An interrupted mkfs.ext4 leaves no superblock.
func (m *Manager) Examine(path string, readOnly bool) error {
	file, err := os.Open(m.at(path))
	if err != nil {
		return err
	}
	text := make([]byte, examined)
	_, err = file.ReadAt(text, 0)
	if err := errors.Join(err, file.Close()); err != nil {
		return fmt.Errorf("%s: its beginning cannot be read: %w", path, err)
	}
	if readOnly || !bytes.HasPrefix(text, []byte(xfsMagic)) || text[xfsInProgress] == 0 {
		return nil
	}
	if file, err = os.OpenFile(m.at(path), os.O_WRONLY, 0); err != nil {
		return err
	}
	defer file.Close()
	klog.Warningf("%s: mkfs.xfs was interrupted; its superblock is erased", path)
	if _, err := file.WriteAt(make([]byte, 4096), 0); err != nil {
		return err
	}
	return file.Sync()
}

// InUse reports whether something holds the device exclusively: a file system that is mounted in any mount namespace, or a device
// on top of it.
func (m *Manager) InUse(place Place) (bool, error) {
	if place.Number < 0 {
		return false, nil
	}
	if place.Kind == NBD {
		// Its number may be that of another volume's device since.
		if here, err := m.isHere(place); err != nil || !here {
			return false, err
		}
	}
	fd, err := unix.Open(m.at(place.Path()), unix.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC, 0)
	switch {
	case err == nil:
		return false, unix.Close(fd)
	case errors.Is(err, unix.EBUSY):
		return true, nil
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV):
		return false, nil
	}
	return false, &os.PathError{Op: "open", Path: place.Path(), Err: err}
}

// lost reports whether a device of NBD returns errors, as it does after its server has ended. A device that is mounted is not
// examined: a new connection would hide the lost writes from its file system. The read may hang with its server, and is left alone
// then.
func (m *Manager) lost(ctx context.Context, path string) (bool, error) {
	found := make(chan bool, 1)
	go func() { found <- m.fails(path) }()
	select {
	case lost := <-found:
		return lost, nil
	case <-ctx.Done():
		return false, fmt.Errorf("%s: a read hangs: %w", path, ctx.Err())
	}
}

func (m *Manager) fails(path string) bool {
	fd, err := unix.Open(m.at(path), unix.O_RDONLY|unix.O_EXCL|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	// A page of memory of its own, because direct reads need an aligned buffer.
	page, err := unix.Mmap(-1, 0, 4096, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	if err != nil {
		return false
	}
	defer func() { _ = unix.Munmap(page) }()
	count, err := unix.Pread(fd, page, 0)
	for errors.Is(err, unix.EINTR) {
		count, err = unix.Pread(fd, page, 0)
	}
	return err != nil || count == 0
}
