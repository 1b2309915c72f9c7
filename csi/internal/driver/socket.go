// SPDX-License-Identifier: MIT OR Apache-2.0

// The socket of a plugin: where it may be, and who may connect.
//
// Invariant: see the package. A socket of an earlier run is removed, and no file of another kind.

package driver

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
	"k8s.io/klog/v2"
)

// umask is the process's; a lock keeps two sockets from being made at the same time.
var umask sync.Mutex

// Listen makes the socket, and its directory if only this is missing. A file of another kind at its path is refused, and so is a
// directory that others can write.
func Listen(path string) (net.Listener, error) {
	if !filepath.IsAbs(path) || filepath.Clean(path) != path || len(path) > 107 {
		return nil, fmt.Errorf("socket %.128q: accepted: an absolute path without . and .., of at most 107 bytes", path)
	}
	dir := filepath.Dir(path)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, err
	}
	if err := private(dir); err != nil {
		return nil, err
	}
	switch info, err := os.Lstat(path); {
	case errors.Is(err, os.ErrNotExist):
	case err != nil:
		return nil, err
	case info.Mode().Type() != os.ModeSocket:
		return nil, fmt.Errorf("socket %s: a file of another kind is there; accepted: a socket of an earlier run", path)
	default:
		if err := os.Remove(path); err != nil {
			return nil, err
		}
	}
	umask.Lock()
	defer umask.Unlock()
	before := unix.Umask(0o177)
	listener, err := net.Listen("unix", path)
	unix.Umask(before)
	if err != nil {
		return nil, err
	}
	return &guarded{listener.(*net.UnixListener)}, nil
}

// private refuses a directory in which another user could exchange the socket.
func private(dir string) error {
	var stat unix.Stat_t
	if err := unix.Lstat(dir, &stat); err != nil {
		return &os.PathError{Op: "stat", Path: dir, Err: err}
	}
	if stat.Mode&unix.S_IFMT != unix.S_IFDIR || !permitted(stat.Uid, uint32(os.Geteuid())) || stat.Mode&0o022 != 0 {
		return fmt.Errorf("directory %s of the socket: user %d, mode %o; accepted: a directory of root that no other user can write",
			dir, stat.Uid, stat.Mode&0o7777)
	}
	return nil
}

// guarded accepts clients of root and of the user of this process.
type guarded struct{ *net.UnixListener }

// Accept returns the next client that may use the plugin. Others are disconnected.
func (g *guarded) Accept() (net.Conn, error) {
	for {
		stream, err := g.AcceptUnix()
		if err != nil {
			return nil, err
		}
		user, err := peer(stream)
		if err == nil && permitted(user, uint32(os.Geteuid())) {
			return stream, nil
		}
		klog.Warningf("%s: a client of user %d is refused (%v); accepted: root and the user of the plugin", g.Addr(), user, err)
		stream.Close()
	}
}

func permitted(user, own uint32) bool { return user == 0 || user == own }

// peer is the user of a client, as the kernel states it.
func peer(stream *net.UnixConn) (uint32, error) {
	raw, err := stream.SyscallConn()
	if err != nil {
		return 0, err
	}
	var credentials *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) {
		credentials, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if failed != nil {
		return 0, failed
	}
	return credentials.Uid, nil
}
