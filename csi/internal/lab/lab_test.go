// SPDX-License-Identifier: MIT OR Apache-2.0

// Package lab is the test of the driver on a machine with real block devices: LVM, ublk or NBD, mkfs, mounts, and the real
// server. tests/lab/csi runs it in virtual machines, as a program that `go test -c` makes, with a real API server.
//
// The test plays the kubelet and the scheduler: it sends requests to the sockets of the plugins, binds and runs helper pods, and
// restarts their containers. A container is a process with namespaces of its own and a root of its own.
//
// Each check is a line `ok - ...` or `not ok - ...` of the report. A failed check ends its part.
package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"larder.dev/csi/internal/device"
)

// Paths of the node.
const (
	dataDir    = "/var/lib/larder-csi"
	kubeletDir = "/var/lib/kubelet"
	pluginDir  = kubeletDir + "/plugins/csi.larder.dev"
	group      = "flash"
	namespace  = "larder"
)

var background = context.Background()

// lab is one boot of a node.
type lab struct {
	t       *testing.T
	share   string
	node    string
	kind    device.Kind
	report  *os.File
	began   time.Time
	api     *api
	plugin  *plugin
	kubelet *kubelet
	calls   calls
	// logs are the sizes of the servers' logs at the start of this boot.
	logs map[string]int64
}

// parts are what a boot can run.
var parts = map[string]func(*lab){
	"life":      life,
	"kills":     kills,
	"cut":       cut,
	"after-cut": afterCut,
	"lost":      lost,
	"taken":     taken,
	"returned":  returned,
	"fill":      fill,
	"measure":   measure,
}

// TestPart runs the part that PART names, on the node NODE. Without LARDER_CSI_LAB, the directory that host and guest share, it
// is skipped.
func TestPart(t *testing.T) {
	share := os.Getenv("LARDER_CSI_LAB")
	if share == "" {
		t.Skip("LARDER_CSI_LAB is not set; tests/lab/csi sets it in a virtual machine")
	}
	part := parts[os.Getenv("PART")]
	if part == nil {
		t.Fatalf("PART: got %q, accepted: one of %d names", os.Getenv("PART"), len(parts))
	}
	report, err := os.OpenFile(filepath.Join(share, "report"), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		t.Fatal(err)
	}
	defer report.Close()
	l := &lab{t: t, share: share, node: os.Getenv("NODE"), kind: device.Kind(os.Getenv("KIND")), report: report, began: time.Now()}
	l.say("== %s on %s, %s", os.Getenv("PART"), l.node, l.kind)
	l.start()
	defer l.end()
	part(l)
}

// start connects to the API server and starts kubelet and node plugin.
func (l *lab) start() {
	l.t.Helper()
	l.logs = map[string]int64{}
	logs, err := os.ReadDir(filepath.Join(l.share, "logs"))
	l.quietly("logs", err)
	for _, log := range logs {
		if info, err := log.Info(); err == nil {
			l.logs[log.Name()] = info.Size()
		}
	}
	l.api = connect(l)
	l.quietly("node", l.api.register(l.node))
	l.kubelet = newKubelet(l)
	l.plugin = newPlugin(l)
	l.calls = dial(l)
	l.must("the node plugin is ready", l.plugin.start())
}

// end leaves the plugin and the servers to the machine, which is switched off: without them it could not write its caches.
func (l *lab) end() { l.kubelet.end() }

func (l *lab) say(format string, args ...any) {
	line := fmt.Sprintf(format, args...)
	fmt.Fprintln(l.report, line)
	fmt.Printf("%6.1f %s\n", time.Since(l.began).Seconds(), line)
}

// must is a check; if it fails, the part ends.
func (l *lab) must(what string, err error) {
	l.t.Helper()
	if err == nil {
		l.say("ok - %s", what)
		return
	}
	l.failed(what, err)
}

// quietly is a check of which only the failure is a line.
func (l *lab) quietly(what string, err error) {
	l.t.Helper()
	if err != nil {
		l.failed(what, err)
	}
}

// stacks prints where each process is in the kernel.
const stacks = `for p in /proc/[0-9]*; do [ -z "$(tr -d '\0' <$p/cmdline)" ] || { tr '\0' ' ' <$p/cmdline; echo; cat $p/syscall $p/stack; }; done 2>&1; true`

func (l *lab) failed(what string, err error) {
	l.t.Helper()
	l.say("not ok - %s", what)
	for _, line := range strings.Split(err.Error(), "\n") {
		l.say("  | %s", line)
	}
	for _, command := range [][]string{{"ps", "axwwo", "pid,ppid,stat,wchan:20,args"}, {"sh", "-c", stacks}} {
		if text, err := output(command[0], command[1:]...); err == nil {
			fmt.Println(text)
		}
	}
	l.t.FailNow()
}

// eventually waits until the condition gives no error; it returns the last one.
func eventually(bound time.Duration, condition func() error) error {
	var err error
	for deadline := time.Now().Add(bound); ; time.Sleep(100 * time.Millisecond) {
		if err = condition(); err == nil {
			return nil
		}
		if errors.As(err, new(*final)) {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("not within %v: %w", bound, err)
		}
	}
}
