// SPDX-License-Identifier: MIT OR Apache-2.0

// Package bind makes a directory or a device appear at another path.
//
// Invariant: a mount that shall be read-only is so from its first moment, and in each mount namespace that receives it.
//
// Why not the program mount: its older versions bind first, and change the new mount after that. The change does not reach the
// copies of the mount in other namespaces, so that pods could write to a volume which only the node plugin saw as read-only.
package bind

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// Mount binds the source to the target, which exists. It needs Linux 5.12.
func Mount(source, target string, readOnly bool) error {
	failed := func(err error) error { return fmt.Errorf("bind mount of %s to %s: %w", source, target, err) }
	tree, err := unix.OpenTree(unix.AT_FDCWD, source, unix.OPEN_TREE_CLONE|unix.OPEN_TREE_CLOEXEC|unix.AT_SYMLINK_NOFOLLOW)
	if err != nil {
		return failed(err)
	}
	defer unix.Close(tree)
	if readOnly {
		if err := unix.MountSetattr(tree, "", unix.AT_EMPTY_PATH, &unix.MountAttr{Attr_set: unix.MOUNT_ATTR_RDONLY}); err != nil {
			return failed(err)
		}
	}
	if err := unix.MoveMount(tree, "", unix.AT_FDCWD, target, unix.MOVE_MOUNT_F_EMPTY_PATH); err != nil {
		return failed(err)
	}
	return nil
}
