// SPDX-License-Identifier: MIT OR Apache-2.0

// The driver over a real server, with a file as the origin and another one as flash. The block device is not made.

package tests

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"larder.dev/csi/internal/control"
	"larder.dev/csi/internal/device"
	"larder.dev/csi/internal/node"
	"larder.dev/csi/internal/settings"
	"larder.dev/csi/internal/testrig"
)

// larder is the program of the server. LARDER names it; without it these tests are skipped.
func larder(t *testing.T) string {
	t.Helper()
	program := os.Getenv("LARDER")
	if program == "" {
		t.Skip("LARDER is not set; accepted: the path of the program larder")
	}
	return program
}

func sparse(t *testing.T, path string, size int64) {
	t.Helper()
	file, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	must(t, err)
	must(t, file.Truncate(size))
	must(t, file.Close())
}

// serve starts a server with the configuration of a helper pod, whose directory is that of the volume.
func serve(t *testing.T, program string) (testrig.Launch, *bytes.Buffer) {
	log := new(bytes.Buffer)
	return func(machine *testrig.Machine, id string) func() {
		dir := filepath.Join(machine.Data, node.VolumesDir, id)
		text, err := os.ReadFile(filepath.Join(dir, node.ConfigFile))
		if err != nil {
			t.Errorf("configuration: %v", err)
			return func() {}
		}
		config := filepath.Join(dir, "test.toml")
		text = bytes.ReplaceAll(text, []byte(node.HelperDir), []byte(dir))
		if err := os.WriteFile(config, text, 0o600); err != nil {
			t.Error(err)
		}
		// The origin is the same file on all machines, as a backing volume is.
		origin := filepath.Join(dir, node.OriginFile)
		_ = os.Remove(origin)
		if err := os.Symlink(filepath.Join(os.Getenv("CSI_TEST_ORIGIN"), id), origin); err != nil {
			t.Error(err)
		}
		server := exec.Command(program, "serve", config)
		server.Stdout, server.Stderr = log, log
		if err := server.Start(); err != nil {
			t.Errorf("%s: %v", program, err)
			return func() {}
		}
		return func() {
			_ = server.Process.Signal(syscall.SIGTERM)
			if err := server.Wait(); err != nil {
				t.Errorf("the server: %v\n%s", err, log)
			}
		}
	}, log
}

func rig(t *testing.T, program string, parameters map[string]string) (*testrig.Cluster, string, *bytes.Buffer) {
	t.Helper()
	cluster := testrig.New(t, "node-a", "node-b")
	origins := t.TempDir()
	t.Setenv("CSI_TEST_ORIGIN", origins)
	launch, log := serve(t, program)
	cluster.SetLaunch(launch)
	for _, machine := range cluster.Machines {
		machine.Server = func(socket string) node.Server { return control.Client{Socket: socket} }
		machine.Devices.As = device.NBD
		machine.Flash.At = filepath.Join(filepath.Dir(machine.Kubelet), "flash")
		machine.Bound = time.Minute
		must(t, os.Mkdir(machine.Flash.At, 0o700))
	}
	id := create(t, cluster, "db", parameters)
	sparse(t, filepath.Join(origins, id), 256<<20)
	return cluster, id, log
}

func reach(machine *testrig.Machine, id string, generation int64) control.Client {
	return control.Client{Socket: filepath.Join(machine.Data, node.VolumesDir, id, node.ControlFile(generation))}
}

func TestTheRealServerIsStagedFlushedAndStopped(t *testing.T) {
	cluster, id, log := rig(t, larder(t), map[string]string{"writeBudget": "1DWPD"})
	a := cluster.Machines["node-a"]
	for round := range 2 {
		must(t, stage(a, id))
		client := reach(a, id, int64(round+1))
		status, err := client.Status(background)
		must(t, err)
		if status.State != "caching" || status.Name != id || status.OriginBytes != 256<<20 || status.Alarm != nil {
			t.Fatalf("round %d: %+v\n%s", round, status, log)
		}
		stats, err := client.Stats(background)
		must(t, err)
		if stats.UnitsTotal == 0 {
			t.Fatalf("%+v", stats)
		}
		must(t, client.Flush(background, time.Second))
		must(t, unstage(a, id))
		if _, err := client.Status(background); err == nil {
			t.Fatal("the server still runs")
		}
	}
	if a.Flash.Created != 1 {
		t.Fatalf("flash was made %d times", a.Flash.Created)
	}
	if strings.Count(log.String(), "starts cold") != 1 {
		t.Fatalf("the second start was not warm:\n%s", log)
	}
}

func TestTheClientDetachesAndAttachesFlash(t *testing.T) {
	cluster, id, log := rig(t, larder(t), nil)
	a := cluster.Machines["node-a"]
	must(t, stage(a, id))
	client := reach(a, id, 1)
	must(t, client.Detach(background, 5*time.Second))
	status, err := client.Status(background)
	if err != nil || status.State != "pass-through" {
		t.Fatalf("%+v, %v\n%s", status, err, log)
	}
	if _, err := client.Attach(background, a.Flash.Path(id)+".none", false, 5*time.Second); !control.Refused(err) {
		t.Fatalf("flash that does not exist: %v", err)
	}
	units, err := client.Attach(background, a.Flash.Path(id), true, 10*time.Second)
	if err != nil || units == 0 {
		t.Fatalf("%d, %v\n%s", units, err, log)
	}
	must(t, unstage(a, id))
}

func TestWriteBackOfTheRealServerIsFlushedBeforeItMoves(t *testing.T) {
	cluster, id, log := rig(t, larder(t), map[string]string{"preset": "prwc"})
	a, b := cluster.Machines["node-a"], cluster.Machines["node-b"]
	must(t, stage(a, id))
	if !record(t, cluster, id).Flash.Dirty {
		t.Fatal("write-back is not recorded as dirty")
	}
	must(t, unstage(a, id))
	if record(t, cluster, id).Flash.Dirty {
		t.Fatalf("a flushed volume is still recorded as dirty\n%s", log)
	}
	must(t, stage(b, id))
	must(t, unstage(b, id))
}

// The time limits hold for a server that is stopped, whose kernel still accepts connections.
func TestAServerThatIsStoppedBlocksNoRequest(t *testing.T) {
	cluster, id, _ := rig(t, larder(t), nil)
	a := cluster.Machines["node-a"]
	must(t, stage(a, id))
	client := reach(a, id, 1)
	status, err := client.Status(background)
	must(t, err)
	must(t, syscall.Kill(status.PID, syscall.SIGSTOP))
	ctx, cancel := context.WithTimeout(background, 200*time.Millisecond)
	defer cancel()
	if _, err := client.Status(ctx); err == nil || control.Refused(err) {
		t.Errorf("got %v", err)
	}
	must(t, syscall.Kill(status.PID, syscall.SIGCONT))
	must(t, unstage(a, id))
}

func TestTheServerHasThePoliciesThatTheDriverAccepts(t *testing.T) {
	program := larder(t)
	dir := t.TempDir()
	for _, preset := range []string{"larder", "sce", "slru", "proc", "flashcache", "enhanceio", "bcache", "prwc", "face", "face-basic"} {
		for _, policy := range []string{"async", "around", "through", "write-back", "full", "ordered", "bounded"} {
			_, refused := settings.ParseClass(map[string]string{
				settings.BackingStorageClass: "san", settings.CacheSize: "1Gi", settings.Preset: preset, settings.Policy: policy})
			// There is no origin, so that a server which accepts the policy ends too.
			ctx, cancel := context.WithTimeout(background, 20*time.Second)
			text, err := exec.CommandContext(ctx, program, "serve", "--origin", filepath.Join(dir, "none"), "--flash", filepath.Join(dir, "flash"),
				"--listen", "nbd+unix:"+filepath.Join(dir, "socket"), "--preset", preset, "--write-policy", policy).CombinedOutput()
			runs := err == nil || ctx.Err() != nil
			cancel()
			if runs {
				t.Fatalf("%s, %s: the server runs without an origin: %s", preset, policy, text)
			}
			if lacks := bytes.Contains(text, []byte("--write-policy: got")); lacks != (refused != nil) {
				t.Errorf("%s, %s: the driver: %v; the server: %s", preset, policy, refused, text)
			}
		}
	}
}
