// SPDX-License-Identifier: MIT OR Apache-2.0

// Package safepath checks and makes the paths that requests name, below one directory.
//
// Invariants: a path that is accepted lies below the root, contains no symbolic link behind the root, and has no part `..`.
// What is made is made relative to a directory that was opened in this way, so a link that is made meanwhile is not followed.
//
// Why not os.Root: it follows links that stay below its root, and a link of one pod's directory to another's is such a link.
package safepath

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// most is the longest path that the kernel takes, its end included.
const most = unix.PathMax - 1

// Root is the directory below which requests may name paths: that of the kubelet.
type Root struct{ path string }

// New makes a root. The root itself may be a link: an administrator chose it.
func New(path string) (Root, error) {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || path == "/" {
		return Root{}, fmt.Errorf("directory of the kubelet: got %q, accepted: an absolute path without . and .., below /", path)
	}
	return Root{path: path}, nil
}

// relative is the path below the root, without a look at the file system.
func (r Root) relative(path string) (string, error) {
	bad := func(accepted string) (string, error) {
		return "", fmt.Errorf("path %.128q: accepted: %s", path, accepted)
	}
	switch {
	case len(path) > most:
		return bad(fmt.Sprintf("at most %d bytes", most))
	case strings.ContainsFunc(path, func(c rune) bool { return c < ' ' || c == 0x7f || c == '\uFFFD' }):
		return bad("UTF-8 without control characters")
	case !filepath.IsAbs(path) || filepath.Clean(path) != path:
		return bad("an absolute path without //, . and ..")
	}
	below, found := strings.CutPrefix(path, r.path+"/")
	if !found || below == "" {
		return bad("a path below " + r.path)
	}
	for _, part := range strings.Split(below, "/") {
		if len(part) > unix.NAME_MAX {
			return bad(fmt.Sprintf("parts of at most %d bytes", unix.NAME_MAX))
		}
	}
	return below, nil
}

// open opens what is at the path, as a place (O_PATH) and not for its content.
func (r Root) open(below string, flags uint64) (int, error) {
	root, err := unix.Open(r.path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: r.path, Err: err}
	}
	defer unix.Close(root)
	how := unix.OpenHow{
		Flags:   unix.O_PATH | unix.O_CLOEXEC | flags,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS,
	}
	for {
		fd, err := unix.Openat2(root, below, &how)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EAGAIN) {
			continue
		}
		if err != nil {
			return -1, &os.PathError{Op: "open", Path: filepath.Join(r.path, below), Err: err}
		}
		return fd, nil
	}
}

// Check accepts a path that may not exist yet. Parts that exist are no links.
func (r Root) Check(path string) error {
	below, err := r.relative(path)
	if err != nil {
		return err
	}
	for below != "." {
		fd, err := r.open(below, 0)
		if err == nil {
			return unix.Close(fd)
		}
		if !errors.Is(err, unix.ENOENT) {
			return refused(err)
		}
		below = filepath.Dir(below)
	}
	return nil
}

// Exists reports whether something is at the path.
func (r Root) Exists(path string) (bool, error) {
	below, err := r.relative(path)
	if err != nil {
		return false, err
	}
	fd, err := r.open(below, 0)
	if errors.Is(err, unix.ENOENT) {
		return false, nil
	}
	if err != nil {
		return false, refused(err)
	}
	return true, unix.Close(fd)
}

// MakeDir makes the directory unless it exists. Its parent must exist: the kubelet makes it.
func (r Root) MakeDir(path string) error {
	return r.make(path, unix.O_DIRECTORY, func(parent int, name string) error {
		return unix.Mkdirat(parent, name, 0o750)
	})
}

// MakeFile makes an empty file unless it exists. Its parent must exist: the kubelet makes it.
func (r Root) MakeFile(path string) error {
	return r.make(path, 0, func(parent int, name string) error {
		fd, err := unix.Openat(parent, name, unix.O_CREAT|unix.O_EXCL|unix.O_NOFOLLOW|unix.O_CLOEXEC|unix.O_WRONLY, 0o640)
		if err != nil {
			return err
		}
		return unix.Close(fd)
	})
}

func (r Root) make(path string, flags uint64, create func(int, string) error) error {
	below, err := r.relative(path)
	if err != nil {
		return err
	}
	parent, err := r.parent(below)
	if err != nil {
		return refused(err)
	}
	defer unix.Close(parent)
	if err := create(parent, filepath.Base(below)); err != nil && !errors.Is(err, unix.EEXIST) {
		return &os.PathError{Op: "create", Path: path, Err: err}
	}
	fd, err := r.open(below, flags)
	if err != nil {
		return refused(err)
	}
	defer unix.Close(fd)
	var stat unix.Stat_t
	if err := unix.Fstat(fd, &stat); err != nil {
		return &os.PathError{Op: "stat", Path: path, Err: err}
	}
	if isDir := stat.Mode&unix.S_IFMT == unix.S_IFDIR; isDir != (flags&unix.O_DIRECTORY != 0) {
		return fmt.Errorf("path %.128q: is of the wrong kind; accepted: a directory for a file system, a file for a block device", path)
	}
	return nil
}

func (r Root) parent(below string) (int, error) {
	if dir := filepath.Dir(below); dir != "." {
		return r.open(dir, unix.O_DIRECTORY)
	}
	fd, err := unix.Open(r.path, unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, &os.PathError{Op: "open", Path: r.path, Err: err}
	}
	return fd, nil
}

// Remove removes the file or the empty directory, if there is one. What is mounted there must be unmounted before.
func (r Root) Remove(path string) error {
	below, err := r.relative(path)
	if err != nil {
		return err
	}
	parent, err := r.parent(below)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	if err != nil {
		return refused(err)
	}
	defer unix.Close(parent)
	name := filepath.Base(below)
	err = unix.Unlinkat(parent, name, unix.AT_REMOVEDIR)
	if errors.Is(err, unix.ENOTDIR) {
		err = unix.Unlinkat(parent, name, 0)
	}
	if err != nil && !errors.Is(err, unix.ENOENT) {
		return &os.PathError{Op: "remove", Path: path, Err: err}
	}
	return nil
}

func refused(err error) error {
	if errors.Is(err, unix.ELOOP) {
		return fmt.Errorf("%w: a part of the path is a symbolic link; accepted: a path without links", err)
	}
	return err
}
