// SPDX-License-Identifier: MIT OR Apache-2.0

// Who may connect, where the socket may be, and what a panic does.

package driver

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
)

func TestTheSocketIsForItsOwnerOnly(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "csi.sock")
	for range 2 { // the second one replaces the socket that a killed plugin left
		listener, err := Listen(path)
		if err != nil {
			t.Fatal(err)
		}
		info, err := os.Stat(path)
		if err != nil || info.Mode().Perm() != 0o600 {
			t.Fatalf("%v, %v", info.Mode(), err)
		}
		t.Cleanup(func() { listener.Close() })
	}
}

func TestUnsafePlacesOfTheSocketAreRefused(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	open := filepath.Join(dir, "open")
	if err := os.Mkdir(open, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(open, 0o777); err != nil {
		t.Fatal(err)
	}
	link := filepath.Join(dir, "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"relative", dir + "/../x", file, open + "/s", link + "/s", dir + "/none/none/s", dir + "/" + strings.Repeat("x", 120)} {
		if listener, err := Listen(path); err == nil {
			listener.Close()
			t.Errorf("%.64q: accepted", path)
		}
	}
	if _, err := os.Stat(file); err != nil {
		t.Error("the file at the path of the socket was removed")
	}
}

func TestUsersOtherThanRootAndTheOwnerAreRefused(t *testing.T) {
	for user, want := range map[uint32]bool{0: true, 500: true, 501: false, 65534: false} {
		if got := permitted(user, 500); got != want {
			t.Errorf("user %d: %v", user, got)
		}
	}
	if os.Getuid() != 0 {
		t.Skip("only root can start a client of another user")
	}
	// The mode alone would refuse this client; the credentials must do so without it.
	dir, err := os.MkdirTemp("/tmp", "csi")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "csi.sock")
	listener, err := Listen(path)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	for name, mode := range map[string]os.FileMode{dir: 0o755, path: 0o666} {
		if err := os.Chmod(name, mode); err != nil {
			t.Fatal(err)
		}
	}
	accepted := make(chan net.Conn, 1)
	go func() {
		if stream, err := listener.Accept(); err == nil {
			accepted <- stream
		}
	}()
	done := make(chan error, 1)
	go func() {
		// The thread has another user and ends with this goroutine.
		runtime.LockOSThread()
		if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, 65534, 65534, 65534); errno != 0 {
			done <- errno
			return
		}
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM, 0)
		if err == nil {
			err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
		}
		if err == nil {
			_, _ = unix.Read(fd, make([]byte, 1))
		}
		done <- err
	}()
	if err := <-done; err != nil {
		t.Fatalf("the client of another user could not connect: %v", err)
	}
	select {
	case <-accepted:
		t.Fatal("a client of another user was accepted")
	case <-time.After(50 * time.Millisecond):
	}
}

type broken struct{ csi.UnimplementedNodeServer }

func (broken) NodeGetInfo(context.Context, *csi.NodeGetInfoRequest) (*csi.NodeGetInfoResponse, error) {
	panic("on purpose")
}

func TestAPanicEndsOneRequest(t *testing.T) {
	dir := t.TempDir()
	if err := os.Chmod(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "s")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- Serve(ctx, path, Services{Identity: &Identity{}, Node: broken{}}) }()
	connection, err := grpc.NewClient("unix:"+path, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := csi.NewNodeClient(connection).NodeGetInfo(ctx, nil); status.Code(err) != codes.Internal {
		t.Errorf("got %v", err)
	}
	if got, err := csi.NewIdentityClient(connection).Probe(ctx, nil); err != nil || !got.GetReady().GetValue() {
		t.Errorf("%v, %v", got, err)
	}
	connection.Close()
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
