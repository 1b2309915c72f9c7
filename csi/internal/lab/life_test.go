// SPDX-License-Identifier: MIT OR Apache-2.0

// The part life: the sequence of a kubelet, each request twice, with kills of the server and of the plugin between requests.

package lab

import (
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"larder.dev/csi/internal/device"
)

// fileSystems are the kinds of volumes; the empty one is a raw block device. Each has a backing device of its own.
var fileSystems = []string{"ext4", "xfs", ""}

// backingMegabytes is the size of a backing device; xfs needs 300 MiB.
const backingMegabytes = 512

// named are the volumes of a part.
func (l *lab) named(part string) []*volume {
	var all []*volume
	for n, fileSystem := range fileSystems {
		kind := fileSystem
		if kind == "" {
			kind = "block"
		}
		name := fmt.Sprintf("%s-%s-%s", part, l.kind, kind)
		all = append(all, l.newVolume(name, fmt.Sprintf("backing%d", n), fileSystem, backingMegabytes))
	}
	return all
}

// volumes are the same with blank backing volumes.
func (l *lab) volumes(part string) []*volume {
	l.t.Helper()
	all := l.named(part)
	for _, v := range all {
		l.quietly("a blank backing volume", v.blank())
	}
	return all
}

func life(l *lab) {
	all := l.volumes("life")
	for _, v := range all {
		l.must(v.String()+": create, twice", errorsOf(v.create, v.create))
		l.must(v.String()+": stage, twice", stageStep.twice(v))
		l.must(v.String()+": publish, twice", publishStep.twice(v))
		l.must(v.String()+": data is written", v.write(1, 1))
	}
	l.must("three volumes have devices of their own", distinct(all))
	for _, v := range all {
		l.must(v.String()+": data is read back", v.verify(1, 1, 0))
		survive(v)
	}
	held, other := all[0], all[1]
	l.must(other.String()+": unpublish, unstage, stage, publish while the server of another volume does not answer", l.kubelet.holds(held.id, func() error {
		return errorsOf(func() error { return unpublishStep.once(other) }, func() error { return unstageStep.once(other) },
			func() error { return stageStep.once(other) }, func() error { return publishStep.once(other) })
	}))
	l.must(held.String()+": writes and reads after that", errorsOf(
		func() error { return held.write(3, 1) }, func() error { return held.verify(3, 1, 0) }))
	l.must("the kernel reports no error", l.quiet())
	for _, v := range all {
		back(v)
	}
	for _, v := range all {
		l.must(v.String()+": delete, twice", deleteStep.twice(v))
	}
	l.gone(all...)
}

// quiet is that of the kernel; a killed server of NBD is an I/O error.
func (l *lab) quiet() error {
	err := quiet()
	if l.kind == device.NBD {
		return nil
	}
	return err
}

// survive kills the plugin and the server under a published volume.
func survive(v *volume) {
	l := v.l
	l.t.Helper()
	l.must(v.String()+": kill -9 of the plugin, the volume stays in use", errorsOf(l.plugin.again, func() error { return v.write(2, 2) }))
	l.must(v.String()+": the data of both writes", v.verify(2, 2, 1))
	l.must(v.String()+": stage and publish repeated after the plugin's restart", errorsOf(
		func() error { return stageStep.once(v) }, func() error { return publishStep.once(v) }))
	l.must(v.String()+": kill -9 of the server, and its restart", l.kubelet.killServer(v.id))
	if l.kind == device.NBD {
		// The pods of the volume are deleted and made again.
		l.must(v.String()+": unpublish, unstage, stage, publish", errorsOf(
			func() error { return unpublishStep.once(v) }, func() error { return unstageStep.once(v) },
			func() error { return stageStep.once(v) }, func() error { return publishStep.once(v) }))
	}
	l.must(v.String()+": the data after the server's restart", v.verify(2, 2, 1))
	l.must(v.String()+": further writes", errorsOf(func() error { return v.write(3, 4) }, func() error {
		all, err := v.versions()
		if err == nil && (all[0] != 3 || all[2] != 2 || all[1] != 1) {
			err = fmt.Errorf("versions %v", all[:3])
		}
		return err
	}))
}

// back gives the volume back, twice, and stages it warm.
func back(v *volume) {
	l := v.l
	l.t.Helper()
	before, err := v.flash()
	l.quietly("flash", err)
	l.must(v.String()+": unpublish, twice", unpublishStep.twice(v))
	if v.fileSystem != "" {
		l.must(v.String()+": is not released while another mount namespace has its mount", v.copied())
	}
	l.must(v.String()+": unstage, twice", unstageStep.twice(v))
	l.must(v.String()+": an unstaged volume has no device, mount, socket or server", v.unused())
	_, end := l.log(v.id, 0)
	l.must(v.String()+": staged again", stageStep.once(v))
	after, err := v.flash()
	l.quietly("flash", err)
	if strings.Fields(before)[0] != strings.Fields(after)[0] || before == after {
		l.failed("the same flash with the next generation", fmt.Errorf("%q, then %q", before, after))
	}
	l.must(v.String()+": warm, on the same logical volume with the next generation", v.warm(end))
	l.must(v.String()+": published again", publishStep.once(v))
	l.must(v.String()+": its data", errorsOf(func() error { return v.write(4, 1) }, func() error { return v.verify(4, 1, 0) }))
	l.must(v.String()+": unpublish", unpublishStep.once(v))
	l.must(v.String()+": unstage", unstageStep.once(v))
}

// copied holds a copy of the staged mount in a mount namespace of its own, as a pod with the host's directories does.
func (v *volume) copied() error {
	holder := exec.Command("unshare", "--mount", "--propagation", "private", "sleep", "600")
	if err := holder.Start(); err != nil {
		return err
	}
	defer func() {
		_ = holder.Process.Kill()
		_ = holder.Wait()
	}()
	if err := eventually(10*time.Second, func() error {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", holder.Process.Pid))
		if err == nil && string(text) != "sleep\n" {
			err = fmt.Errorf("the holder is %s", text)
		}
		return err
	}); err != nil {
		return err
	}
	if err := unstageStep.once(v); status.Code(err) != codes.FailedPrecondition {
		return fmt.Errorf("unstage: %v, expected FailedPrecondition", err)
	}
	return nil
}

// warm verifies that the servers which started after this place of the log found their cache.
func (v *volume) warm(from int64) error {
	text, _ := v.l.log(v.id, from)
	if strings.Contains(text, "starts cold") {
		return fmt.Errorf("the server started cold: %s", text)
	}
	used, err := v.unitsUsed()
	if err == nil && used == 0 {
		err = fmt.Errorf("the cache is empty: %s", text)
	}
	return err
}

func distinct(volumes []*volume) error {
	seen := map[string]string{}
	for _, v := range volumes {
		place, err := v.place()
		if err != nil {
			return err
		}
		if other, taken := seen[place]; taken {
			return fmt.Errorf("%s and %s have %s", other, v, place)
		}
		seen[place] = v.String()
	}
	return nil
}

// errorsOf is the first error.
func errorsOf(calls ...func() error) error {
	for _, call := range calls {
		if err := call(); err != nil {
			return err
		}
	}
	return nil
}
