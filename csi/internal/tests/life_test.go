// SPDX-License-Identifier: MIT OR Apache-2.0

// The life of a volume: warm and cold starts, deletion, dirty data, time limits, health.

package tests

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"larder.dev/csi/internal/fence"
	"larder.dev/csi/internal/node"
	"larder.dev/csi/internal/testrig"
)

var background = context.Background()

func mountOf(fileSystem string) *csi.VolumeCapability {
	return &csi.VolumeCapability{
		AccessMode: &csi.VolumeCapability_AccessMode{Mode: csi.VolumeCapability_AccessMode_SINGLE_NODE_WRITER},
		AccessType: &csi.VolumeCapability_Mount{Mount: &csi.VolumeCapability_MountVolume{FsType: fileSystem}},
	}
}

// staged is a cluster with these nodes, the first of them, and a volume that is staged on it.
func staged(t *testing.T, nodes ...string) (*testrig.Cluster, *testrig.Machine, string) {
	t.Helper()
	cluster := testrig.New(t, nodes...)
	first := cluster.Machines[nodes[0]]
	id := create(t, cluster, "db", nil)
	must(t, stage(first, id))
	return cluster, first, id
}

func create(t *testing.T, cluster *testrig.Cluster, name string, parameters map[string]string) string {
	t.Helper()
	all := map[string]string{"backingStorageClass": "san", "cacheSize": "1Gi"}
	for key, value := range parameters {
		all[key] = value
	}
	made, err := cluster.Controller.CreateVolume(background, &csi.CreateVolumeRequest{
		Name: name, Parameters: all, VolumeCapabilities: []*csi.VolumeCapability{mountOf("ext4")},
		CapacityRange: &csi.CapacityRange{RequiredBytes: 10 << 30},
	})
	if err != nil {
		t.Fatal(err)
	}
	return made.GetVolume().GetVolumeId()
}

func staging(machine *testrig.Machine) string { return filepath.Join(machine.Kubelet, "staging") }
func target(machine *testrig.Machine) string  { return filepath.Join(machine.Kubelet, "target") }

func stage(machine *testrig.Machine, id string) error {
	_, err := machine.NodeStageVolume(background, &csi.NodeStageVolumeRequest{
		VolumeId: id, StagingTargetPath: staging(machine), VolumeCapability: mountOf("ext4"),
	})
	return err
}

func unstage(machine *testrig.Machine, id string) error {
	_, err := machine.NodeUnstageVolume(background, &csi.NodeUnstageVolumeRequest{VolumeId: id, StagingTargetPath: staging(machine)})
	return err
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wants(t *testing.T, err error, code codes.Code, text string) {
	t.Helper()
	if status.Code(err) != code || !strings.Contains(err.Error(), text) {
		t.Fatalf("got %v, want %v with %q", err, code, text)
	}
}

func record(t *testing.T, cluster *testrig.Cluster, id string) fence.Record {
	t.Helper()
	volume, err := cluster.Store.Volume(background, id)
	must(t, err)
	return volume.Status
}

// A server recognises by it what servers of earlier grants left.
func TestTheServerKnowsItsGrant(t *testing.T) {
	_, a, id := staged(t, "node-a")
	for grant := 1; grant <= 2; grant++ {
		text, err := os.ReadFile(filepath.Join(a.Data, node.VolumesDir, id, node.ConfigFile))
		if line := fmt.Sprintf("\ngeneration = %d\n", grant); err != nil || !strings.Contains(string(text), line) {
			t.Fatalf("%v; expected%sin\n%s", err, line, text)
		}
		must(t, unstage(a, id))
		must(t, stage(a, id))
	}
}

func TestAVolumeReturnsWarmToItsNodeAndColdToAnother(t *testing.T) {
	cluster := testrig.New(t, "node-a", "node-b")
	a, b := cluster.Machines["node-a"], cluster.Machines["node-b"]
	id := create(t, cluster, "db", nil)
	for range 2 { // on node a: created once, then warm
		must(t, stage(a, id))
		must(t, stage(a, id))
		must(t, unstage(a, id))
		must(t, unstage(a, id))
	}
	if a.Flash.Created != 1 || a.Servers.Flushed != 2 {
		t.Fatalf("flash was made %d times, %d flushes", a.Flash.Created, a.Servers.Flushed)
	}
	must(t, stage(b, id))
	wants(t, stage(a, id), codes.FailedPrecondition, "node node-b holds the volume")
	must(t, unstage(b, id))
	must(t, stage(a, id))
	if a.Flash.Created != 2 {
		t.Fatal("stale flash was used warm")
	}
	if got := record(t, cluster, id); got.Generation != 4 || got.Flash.Node != "node-a" || got.Flash.Generation != 4 {
		t.Fatalf("%+v", got)
	}
	if running := cluster.Running(id); len(running) != 1 || running[0] != "node-a" {
		t.Fatalf("servers on %v", running)
	}
	// Flash of b is stale, and is removed.
	must(t, b.Sweep(background))
	if found, _ := b.Flash.Find(background, id); found != nil {
		t.Fatal("stale flash was kept")
	}
	must(t, a.Sweep(background))
	if found, _ := a.Flash.Find(background, id); found == nil {
		t.Fatal("flash in use was removed")
	}
}

func TestADeletedVolumeLeavesNothing(t *testing.T) {
	cluster := testrig.New(t, "node-a")
	a := cluster.Machines["node-a"]
	remove := func(id string) error {
		_, err := cluster.Controller.DeleteVolume(background, &csi.DeleteVolumeRequest{VolumeId: id})
		return err
	}
	gone := func(id string) func() bool {
		return func() bool { _, err := cluster.Store.Volume(background, id); return err != nil }
	}
	unused := create(t, cluster, "unused", nil)
	must(t, remove(unused))
	cluster.Eventually("the record of a volume without flash is gone", gone(unused))
	id := create(t, cluster, "db", nil)
	must(t, stage(a, id))
	wants(t, remove(id), codes.FailedPrecondition, "node node-a holds it")
	must(t, unstage(a, id))
	must(t, remove(id))
	must(t, remove(id))
	wants(t, stage(a, id), codes.FailedPrecondition, "is being deleted")
	must(t, a.Sweep(background))
	if found, _ := a.Flash.Find(background, id); found != nil {
		t.Fatal("flash was kept")
	}
	cluster.Eventually("the record is gone", gone(id))
	claims, err := cluster.Objects.CoreV1().PersistentVolumeClaims(testrig.Namespace).List(background, metav1.ListOptions{})
	must(t, err)
	if len(claims.Items) != 0 {
		t.Fatalf("%d backing claims were kept", len(claims.Items))
	}
}

// The controller ended between the deletions of the record and of the claim, and the record is gone when the request is repeated.
func TestAnInterruptedDeletionIsFinished(t *testing.T) {
	cluster := testrig.New(t, "node-a")
	id := create(t, cluster, "db", nil)
	volume, err := cluster.Store.Volume(background, id)
	must(t, err)
	must(t, cluster.Store.Delete(background, volume))
	cluster.Eventually("the record is gone", func() bool { _, err := cluster.Store.Volume(background, id); return err != nil })
	_, err = cluster.Controller.DeleteVolume(background, &csi.DeleteVolumeRequest{VolumeId: id})
	must(t, err)
	claims, err := cluster.Objects.CoreV1().PersistentVolumeClaims(testrig.Namespace).List(background, metav1.ListOptions{})
	must(t, err)
	if len(claims.Items) != 0 {
		t.Fatalf("%d backing claims were kept", len(claims.Items))
	}
}

func TestDirtyFlashKeepsItsVolumeUntilAFlush(t *testing.T) {
	cluster := testrig.New(t, "node-a", "node-b")
	a, b := cluster.Machines["node-a"], cluster.Machines["node-b"]
	id := create(t, cluster, "db", map[string]string{"preset": "prwc"})
	must(t, stage(a, id))
	if got := record(t, cluster, id); !got.Flash.Dirty {
		t.Fatalf("%+v", got)
	}
	a.Servers.Set(func(s *testrig.Servers) { s.FlushFails = errors.New("the origin does not answer") })
	wants(t, unstage(a, id), codes.Unavailable, "the flush failed")
	wants(t, stage(b, id), codes.FailedPrecondition, "node node-a holds")
	a.Servers.Set(func(s *testrig.Servers) { s.FlushFails = nil })
	must(t, unstage(a, id))
	must(t, stage(b, id))
	if got := record(t, cluster, id); got.Flash.Node != "node-b" {
		t.Fatalf("%+v", got)
	}
}

func TestAnUnstageIsBoundedAndTheVolumeStaysLockedMeanwhile(t *testing.T) {
	cluster, a, id := staged(t, "node-a")
	release := make(chan struct{})
	a.Mounts.UnmountFunc = func(string) error { <-release; return nil }
	a.Bound = 100 * time.Millisecond
	began := time.Now()
	wants(t, unstage(a, id), codes.DeadlineExceeded, "")
	if took := time.Since(began); took > 5*time.Second {
		t.Fatalf("took %v", took)
	}
	wants(t, unstage(a, id), codes.Aborted, "another operation")
	wants(t, stage(a, id), codes.Aborted, "another operation")
	close(release)
	a.Bound = 10 * time.Second
	cluster.Eventually("the volume is unlocked", func() bool { return status.Code(unstage(a, id)) != codes.Aborted })
	must(t, unstage(a, id))
}

func TestConcurrentRequestsForOneVolumeAreAborted(t *testing.T) {
	cluster := testrig.New(t, "node-a")
	a := cluster.Machines["node-a"]
	id := create(t, cluster, "db", nil)
	results := make(chan error, 8)
	for range cap(results) {
		go func() { results <- stage(a, id) }()
	}
	done := 0
	for range cap(results) {
		switch err := <-results; status.Code(err) {
		case codes.OK:
			done++
		case codes.Aborted:
		default:
			t.Error(err)
		}
	}
	if done == 0 || a.Flash.Created != 1 {
		t.Fatalf("%d succeeded, flash was made %d times", done, a.Flash.Created)
	}
}

func TestAlarmsAreHealth(t *testing.T) {
	cluster := testrig.New(t, "node-a")
	a := cluster.Machines["node-a"]
	id := create(t, cluster, "db", nil)
	health := func() []*csi.VolumeHealth_VolumeHealthEntry {
		got, err := a.NodeGetVolumeHealth(background, &csi.NodeGetVolumeHealthRequest{VolumeId: id})
		must(t, err)
		return got.GetVolumeHealth().GetHealthStatuses()
	}
	must(t, stage(a, id))
	if got := health(); len(got) != 0 {
		t.Fatal(got)
	}
	for alarm, want := range map[string]csi.VolumeHealthErrorType{
		"the origin could not flush: EIO":             csi.VolumeHealthErrorType_DATA_LOSS,
		"the origin does not answer":                  csi.VolumeHealthErrorType_INACCESSIBLE,
		"flash I/O error; dirty data is at risk: EIO": csi.VolumeHealthErrorType_INACCESSIBLE,
		"flash /dev/flash/x failed: ENXIO":            csi.VolumeHealthErrorType_DEGRADED,
		"something new":                               csi.VolumeHealthErrorType_DEGRADED,
	} {
		a.Servers.Set(func(s *testrig.Servers) { s.Alarm = &alarm })
		if got := health(); len(got) != 1 || got[0].GetStatus() != want || got[0].GetMessage() != alarm {
			t.Errorf("%s: %v", alarm, got)
		}
	}
}
