// SPDX-License-Identifier: MIT OR Apache-2.0

// The files of a node are in a directory here, and nbd-client is a shell script.

package device

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	utilexec "k8s.io/utils/exec"
)

// machine is a directory with the files of a node, and a program nbd-client that changes them as the kernel does.
func machine(t *testing.T, files ...string) *Manager {
	t.Helper()
	root := t.TempDir()
	for _, name := range append(files, "/proc/sys/kernel/random/boot_id") {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("boot-1\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	programs := t.TempDir()
	script := `#!/bin/sh
echo "$*" >>` + root + `/log
case $1 in
-unix) n=${5#/dev/}; echo 1 >` + root + `/sys/block/$n/pid; mkdir -p ` + root + `/dev; head -c 4096 /dev/zero >` + root + `/dev/$n ;;
-d) n=${2#/dev/}; rm ` + root + `/sys/block/$n/pid ;;
esac
`
	if err := os.WriteFile(filepath.Join(programs, "nbd-client"), []byte(script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", programs+":/usr/bin:/bin")
	return &Manager{Exec: utilexec.New(), Root: root}
}

func TestUblkIsPreferredAndItsNumbersAreDistinct(t *testing.T) {
	manager := machine(t, "/dev/ublk-control", "/dev/ublkc0")
	place, err := manager.Choose([]Place{{Kind: Ublk, Number: 1}, {Kind: NBD, Number: 2}})
	if err != nil || place != (Place{Kind: Ublk, Number: 2}) || place.Path() != "/dev/ublkb2" || place.Listen("s") != "ublk:2" {
		t.Fatalf("%+v, %v", place, err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 50*time.Millisecond)
	defer cancel()
	if _, err := manager.Attach(ctx, place, nil, "db", "s", nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("a device that does not appear: %v", err)
	}
}

func TestAnNBDDeviceIsRecordedBeforeItIsConnected(t *testing.T) {
	manager := machine(t, "/sys/block/nbd0/pid", "/sys/block/nbd1/size")
	place, err := manager.Choose(nil)
	if err != nil || place.Kind != NBD || place.Listen("/s") != "nbd+unix:/s" {
		t.Fatalf("%+v, %v", place, err)
	}
	var recorded []Place
	record := func(place Place) error {
		recorded = append(recorded, place)
		if manager.connected(1) {
			t.Error("the device was connected before it was recorded")
		}
		return nil
	}
	ctx := context.Background()
	for range 2 { // the second request finds the device of the first
		if place, err = manager.Attach(ctx, place, nil, "db", "/s", record); err != nil || place.Number != 1 {
			t.Fatalf("%+v, %v", place, err)
		}
	}
	if len(recorded) != 1 || recorded[0] != place {
		t.Fatalf("%+v", recorded)
	}
	log, _ := os.ReadFile(filepath.Join(manager.Root, "log"))
	if string(log) != "-unix /s -name db /dev/nbd1\n" {
		t.Fatalf("%s", log)
	}
	// A device of another boot may be that of another program.
	other := place
	other.Boot = "boot-0"
	if err := manager.Detach(ctx, other); err != nil || !manager.connected(1) {
		t.Fatalf("%v: the device of another boot was disconnected", err)
	}
	for range 2 {
		if err := manager.Detach(ctx, place); err != nil || manager.connected(1) {
			t.Fatal(err)
		}
	}
}

func TestWithoutAFreeNBDDeviceTheErrorNamesTheModule(t *testing.T) {
	manager := machine(t, "/sys/block/nbd0/pid")
	_, err := manager.Attach(context.Background(), Place{Kind: NBD, Number: -1}, nil, "db", "/s", nil)
	if err == nil || !strings.Contains(err.Error(), "nbds_max") {
		t.Fatalf("got %v", err)
	}
}

// An empty file in place of the device: nothing can be read from it, as from a device whose server has ended.
func TestAnNBDDeviceWhoseServerEndedIsConnectedAgain(t *testing.T) {
	manager := machine(t, "/sys/block/nbd0/size", "/sys/block/nbd1/size")
	ctx := context.Background()
	place, err := manager.Attach(ctx, Place{Kind: NBD, Number: -1}, nil, "db", "/s", func(Place) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(filepath.Join(manager.Root, "dev/nbd0"), 0); err != nil {
		t.Fatal(err)
	}
	if place, err = manager.Attach(ctx, place, nil, "db", "/s", func(Place) error { return nil }); err != nil || place.Number != 0 {
		t.Fatalf("%+v, %v", place, err)
	}
	log, _ := os.ReadFile(filepath.Join(manager.Root, "log"))
	if want := "-unix /s -name db /dev/nbd0\n-d /dev/nbd0\n-unix /s -name db /dev/nbd0\n"; string(log) != want {
		t.Fatalf("%s", log)
	}
}

func TestOnlyAnInterruptedMkfsIsErased(t *testing.T) {
	manager := machine(t)
	path := filepath.Join(manager.Root, "disk")
	begin := func(text string, inProgress byte) []byte {
		all := make([]byte, 128<<10)
		copy(all, text)
		all[126] = inProgress
		all[100<<10] = 1
		return all
	}
	for _, one := range []struct {
		text  []byte
		erase bool
	}{{begin("", 0), false}, {begin("XFSB", 0), false}, {begin("XFSB", 1), true}, {begin("data", 1), false}} {
		if err := os.WriteFile(path, one.text, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := manager.Examine("/disk", false); err != nil {
			t.Fatal(err)
		}
		after, _ := os.ReadFile(path)
		want := one.text
		if one.erase {
			want = begin("", 0)
		}
		if string(after) != string(want) {
			t.Errorf("%q, in progress %d: changed in a wrong way", one.text[:4], one.text[126])
		}
	}
	if err := os.WriteFile(path, make([]byte, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := manager.Examine("/disk", false); err == nil {
		t.Error("a device that cannot be read is accepted")
	}
}

// The unstage of the first volume is interrupted after it disconnected its device, and repeated when another volume has been attached.
func TestARepeatedDetachDisconnectsNoOtherVolume(t *testing.T) {
	manager := machine(t, "/sys/block/nbd0/size", "/sys/block/nbd1/size")
	ctx, none := context.Background(), Place{Kind: NBD, Number: -1}
	record := func(Place) error { return nil }
	first, err := manager.Attach(ctx, none, nil, "first", "/s", record)
	if err != nil {
		t.Fatal(err)
	}
	if err := manager.Detach(ctx, first); err != nil {
		t.Fatal(err)
	}
	second, err := manager.Attach(ctx, none, []Place{first}, "second", "/s", record)
	if err != nil || second.Number == first.Number {
		t.Fatalf("%+v, %v: the number of another volume", second, err)
	}
	if err := manager.Detach(ctx, first); err != nil || !manager.connected(second.Number) {
		t.Fatalf("%v: the device of the second volume was disconnected", err)
	}
}

func TestAConnectionIsCutOnceWhenItsServerWasReplaced(t *testing.T) {
	manager := machine(t, "/sys/block/nbd0/size", "/s")
	ctx, socket := context.Background(), filepath.Join(manager.Root, "s")
	var recorded Place
	record := func(place Place) error { recorded = place; return nil }
	if _, err := manager.Attach(ctx, Place{Kind: NBD, Number: -1}, nil, "db", "/s", record); err != nil || recorded.Server == 0 {
		t.Fatalf("%+v, %v", recorded, err)
	}
	cut := func(want bool) {
		t.Helper()
		if got, err := manager.Cut(ctx, func() (Place, error) { return recorded, nil }, "/s"); got != want || err != nil {
			t.Fatalf("%v, %v", got, err)
		}
	}
	cut(false)
	later := time.Unix(0, recorded.Server).Add(time.Second)
	if err := os.Chtimes(socket, later, later); err != nil {
		t.Fatal(err)
	}
	cut(true)
	// As while it is in use.
	if err := os.WriteFile(filepath.Join(manager.Root, "/sys/block/nbd0/pid"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	cut(false)
	recorded.Server, recorded.Boot = 1, "an earlier one"
	cut(false)
}

func TestAConnectionWhoseServerWasReplacedMeanwhileIsNotKept(t *testing.T) {
	manager := machine(t, "/sys/block/nbd0/size", "/s")
	later := time.Now().Add(time.Hour)
	record := func(Place) error { return os.Chtimes(filepath.Join(manager.Root, "s"), later, later) }
	_, err := manager.Attach(context.Background(), Place{Kind: NBD, Number: -1}, nil, "db", "/s", record)
	if err == nil || !strings.Contains(err.Error(), "was replaced") || manager.connected(0) {
		t.Fatalf("%v, connected: %v", err, manager.connected(0))
	}
}

func TestADeviceOfAnEarlierBootIsNotInUse(t *testing.T) {
	manager := machine(t, "/sys/block/nbd0/size", "/sys/block/nbd0/pid")
	// A link to itself cannot be opened: an error shows that it was looked at.
	if err := os.MkdirAll(filepath.Join(manager.Root, "dev"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("nbd0", filepath.Join(manager.Root, "dev/nbd0")); err != nil {
		t.Fatal(err)
	}
	if used, err := manager.InUse(Place{Kind: NBD, Number: 0, Boot: "an earlier one"}); used || err != nil {
		t.Fatalf("%v, %v", used, err)
	}
	boot, err := manager.Boot()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := manager.InUse(Place{Kind: NBD, Number: 0, Boot: boot}); err == nil {
		t.Fatal("the device of this boot was not looked at")
	}
}
