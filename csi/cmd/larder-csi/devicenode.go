// SPDX-License-Identifier: MIT OR Apache-2.0

// The command of the first container of a helper pod.
//
// Invariant: only a block device gets a second name, and the name is replaced in one step.

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// deviceNode makes a second name of a block device. The first container of a helper pod uses it: the device of the claim is in
// its own /dev, and the server's container has the /dev of the node.
func deviceNode(_ context.Context, flags *flag.FlagSet, args []string) error {
	paths, err := parse(flags, args, 2)
	if err != nil {
		return err
	}
	from, to := paths[0], paths[1]
	var stat unix.Stat_t
	if err := unix.Lstat(from, &stat); err != nil {
		return &os.PathError{Op: "stat", Path: from, Err: err}
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFBLK {
		return fmt.Errorf("%s: is no block device; the backing claim must have volumeMode: Block", from)
	}
	temporary := to + ".new"
	if err := os.Remove(temporary); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := unix.Mknod(temporary, unix.S_IFBLK|0o600, int(stat.Rdev)); err != nil {
		return &os.PathError{Op: "mknod", Path: temporary, Err: err}
	}
	return os.Rename(temporary, to)
}
