// SPDX-License-Identifier: MIT OR Apache-2.0

package bind

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

// The target is a mount in the namespace of the caller, and in another one that receives its mounts, as a node that of its plugin.
func TestAReadOnlyMountIsSoInEachNamespace(t *testing.T) {
	// The thread has a mount namespace of its own, and ends with the test.
	runtime.LockOSThread()
	if err := unix.Unshare(unix.CLONE_FS | unix.CLONE_NEWNS); err != nil {
		t.Skipf("needs root: %v", err)
	}
	dir := t.TempDir()
	must(t, unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""))
	must(t, unix.Mount("tmpfs", dir, "tmpfs", 0, ""))
	must(t, unix.Mount("", dir, "", unix.MS_SHARED, ""))
	defer func() { _ = unix.Unmount(dir, unix.MNT_DETACH) }()
	staging, writable, readOnly := filepath.Join(dir, "staging"), filepath.Join(dir, "rw"), filepath.Join(dir, "ro")
	for _, path := range []string{staging, writable, readOnly} {
		must(t, os.Mkdir(path, 0o755))
	}
	other := exec.Command("sleep", "60")
	other.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	must(t, other.Start())
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()

	must(t, Mount(staging, writable, false))
	must(t, Mount(staging, readOnly, true))
	for _, root := range []string{"", fmt.Sprintf("/proc/%d/root", other.Process.Pid)} {
		must(t, os.WriteFile(root+writable+"/file", nil, 0o644))
		if _, err := os.Stat(root + readOnly + "/file"); err != nil {
			t.Errorf("%q: it has not the content of its source: %v", root, err)
		}
		if err := os.WriteFile(root+readOnly+"/file", nil, 0o644); !errors.Is(err, unix.EROFS) {
			t.Errorf("%q: a write: %v, expected EROFS", root, err)
		}
	}
}

func TestAMountThatFailsNamesBothPaths(t *testing.T) {
	dir := t.TempDir()
	source, target := filepath.Join(dir, "source"), filepath.Join(dir, "target")
	err := Mount(source, target, false)
	if err == nil || err.Error() != fmt.Sprintf("bind mount of %s to %s: %v", source, target, errors.Unwrap(err)) {
		t.Fatal(err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
