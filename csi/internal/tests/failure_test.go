// SPDX-License-Identifier: MIT OR Apache-2.0

// Failures: interrupted steps, a partitioned node, lost pods, lost state of a node.

package tests

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"

	"larder.dev/csi/internal/controller"
	"larder.dev/csi/internal/fence"
	"larder.dev/csi/internal/node"
	"larder.dev/csi/internal/store"
	"larder.dev/csi/internal/testrig"
)

// A crash between two steps is an error after the first and before the second: what is stored is the same.
func TestAStageThatWasInterruptedIsRepeated(t *testing.T) {
	interruptions := map[string]func(*testrig.Cluster, *testrig.Machine, string){
		"before flash is made": func(_ *testrig.Cluster, m *testrig.Machine, _ string) {
			m.Flash.SetFail("create", errors.New("interrupted"))
		},
		"before flash has its generation": func(_ *testrig.Cluster, m *testrig.Machine, _ string) {
			m.Flash.SetFail("generation", errors.New("interrupted"))
		},
		"before the device is attached": func(_ *testrig.Cluster, m *testrig.Machine, _ string) {
			m.Devices.Fail = errors.New("interrupted")
		},
	}
	for n := range 4 {
		interruptions[fmt.Sprintf("at change %d of the record", n)] = func(c *testrig.Cluster, _ *testrig.Machine, _ string) {
			left := n
			c.Records.PrependReactor("update", "lardervolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
				left--
				return left == -1, nil, errors.New("interrupted")
			})
		}
	}
	for name, interrupt := range interruptions {
		t.Run(name, func(t *testing.T) {
			cluster := testrig.New(t, "node-a")
			a := cluster.Machines["node-a"]
			id := create(t, cluster, "db", nil)
			interrupt(cluster, a, id)
			repeated := func(call func(*testrig.Machine, string) error) func() bool {
				return func() bool { return call(a, id) == nil }
			}
			cluster.Eventually("staged", repeated(stage))
			if got := record(t, cluster, id); got.Phase != fence.Serving || got.Generation != 1 {
				t.Fatalf("%+v", got)
			}
			cluster.Eventually("unstaged", repeated(unstage))
			if got := record(t, cluster, id); got.Holder != "" || len(cluster.Running(id)) != 0 {
				t.Fatalf("%+v, servers on %v", got, cluster.Running(id))
			}
		})
	}
}

func TestAStageThatFailedIsUndoneByAnUnstage(t *testing.T) {
	cluster := testrig.New(t, "node-a", "node-b")
	a, b := cluster.Machines["node-a"], cluster.Machines["node-b"]
	id := create(t, cluster, "db", nil)
	a.Flash.SetFail("create", errors.New("no room"))
	wants(t, stage(a, id), codes.Internal, "no room")
	must(t, unstage(a, id))
	must(t, stage(b, id))
}

// The helper pod never starts, for example because the backing volume cannot be attached.
func TestAWriteBackVolumeThatWasNeverServedIsReleased(t *testing.T) {
	cluster := testrig.New(t, "node-a", "node-b")
	a, b := cluster.Machines["node-a"], cluster.Machines["node-b"]
	cluster.SetLaunch(func(*testrig.Machine, string) func() { return func() {} })
	id := create(t, cluster, "db", map[string]string{"preset": "prwc"})
	a.Bound = 200 * time.Millisecond
	wants(t, stage(a, id), codes.DeadlineExceeded, "")
	a.Bound = 10 * time.Second
	cluster.Eventually("the volume is released", func() bool { return unstage(a, id) == nil })
	if got := record(t, cluster, id); got.Flash.Dirty {
		t.Fatalf("%+v", got)
	}
	b.Bound = 200 * time.Millisecond
	wants(t, stage(b, id), codes.DeadlineExceeded, "")
}

// A node is partitioned, declared dead, replaced, and returns with its server running and its flash full.
func TestAPartitionedNodeIsFenced(t *testing.T) {
	var later atomic.Int64
	cluster := testrig.New(t, "node-a", "node-b")
	cluster.Controller.Observer.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
	a, b := cluster.Machines["node-a"], cluster.Machines["node-b"]
	id := create(t, cluster, "db", nil)
	must(t, stage(a, id))
	a.Detach(true)
	// The lease alone does not take the volume from a: its helper pod exists.
	wants(t, stage(b, id), codes.FailedPrecondition, "node node-a holds the volume")
	later.Add(int64(time.Hour))
	for range 3 {
		_, err := cluster.Controller.Reconcile(background, id)
		must(t, err)
	}
	if got := record(t, cluster, id); got.Holder != "node-a" {
		t.Fatalf("an expired lease alone led to %+v", got)
	}
	// An administrator declares the node dead, upon which Kubernetes removes its pods.
	cluster.Eventually("the volume is free", func() bool {
		later.Add(int64(time.Hour))
		_ = cluster.Objects.Tracker().Delete(testrig.Pods, testrig.Namespace, controller.PodName(id, 1))
		_, _ = cluster.Controller.Reconcile(background, id)
		return record(t, cluster, id).Holder == ""
	})
	// Also one that the controller made again meanwhile.
	staged, removed := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(removed)
		for {
			select {
			case <-staged:
				return
			case <-time.After(5 * time.Millisecond):
				_ = cluster.Objects.Tracker().Delete(testrig.Pods, testrig.Namespace, controller.PodName(id, 1))
			}
		}
	}()
	err := stage(b, id)
	close(staged)
	<-removed
	must(t, err)
	if running := cluster.Running(id); !slices.Contains(running, "node-b") || !slices.Contains(running, "node-a") {
		t.Fatalf("servers on %v: the paused server of node-a must still run in this test", running)
	}
	// a returns: its plugin notices the newer generation, its kubelet ends the server, its flash is not used.
	a.Detach(false)
	must(t, a.Renew(background))
	got, err := a.NodeGetVolumeHealth(background, &csi.NodeGetVolumeHealthRequest{VolumeId: id})
	must(t, err)
	if health := got.GetVolumeHealth().GetHealthStatuses(); len(health) == 0 || health[0].GetReason() != "Fenced" {
		t.Fatalf("%v", health)
	}
	cluster.Eventually("the server of node-a has ended", func() bool { return !slices.Contains(cluster.Running(id), "node-a") })
	must(t, unstage(a, id))
	if record := record(t, cluster, id); record.Holder != "node-b" || a.Servers.Flushed != 0 {
		t.Fatalf("%+v: a stale unstage changed the record, or flushed (%d)", record, a.Servers.Flushed)
	}
	must(t, unstage(b, id))
	must(t, stage(a, id))
	if a.Flash.Created != 2 {
		t.Fatal("the stale flash of the partitioned node was used")
	}
}

// Kubernetes removes pods of a node that was declared dead only if they are being deleted, and helper pods tolerate each taint.
func TestADeadNodeLosesItsVolumeOnceTheLeaseHasExpired(t *testing.T) {
	for name, declare := range map[string]func(*testrig.Cluster){
		"by a taint": func(cluster *testrig.Cluster) {
			node := &core.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-a"}, Spec: core.NodeSpec{Taints: []core.Taint{{
				Key: core.TaintNodeOutOfService, Effect: core.TaintEffectNoExecute,
			}}}}
			_, err := cluster.Objects.CoreV1().Nodes().Update(background, node, metav1.UpdateOptions{})
			must(t, err)
		},
		"by its deletion": func(cluster *testrig.Cluster) {
			must(t, cluster.Objects.CoreV1().Nodes().Delete(background, "node-a", deleteOptions))
		},
	} {
		t.Run(name, func(t *testing.T) {
			var later atomic.Int64
			cluster := testrig.New(t, "node-a", "node-b")
			cluster.Controller.Observer.Now = func() time.Time { return time.Now().Add(time.Duration(later.Load())) }
			a := cluster.Machines["node-a"]
			id := create(t, cluster, "db", nil)
			must(t, stage(a, id))
			a.Detach(true)
			declare(cluster)
			pods := cluster.Objects.CoreV1().Pods(testrig.Namespace)
			collect := func() {
				pod, err := pods.Get(background, controller.PodName(id, 1), metav1.GetOptions{})
				if err == nil && pod.DeletionTimestamp != nil {
					_ = cluster.Objects.Tracker().Delete(testrig.Pods, testrig.Namespace, pod.Name)
				}
			}
			_, err := cluster.Controller.Reconcile(background, id)
			must(t, err)
			collect()
			if got := record(t, cluster, id); got.Holder != "node-a" {
				t.Fatalf("before the lease has expired: %+v", got)
			}
			cluster.Eventually("the volume is free", func() bool {
				later.Add(int64(time.Hour))
				_, _ = cluster.Controller.Reconcile(background, id)
				collect()
				return record(t, cluster, id).Holder == ""
			})
			if list, err := pods.List(background, metav1.ListOptions{}); err != nil || len(list.Items) != 0 {
				t.Fatalf("a helper pod was made on a dead node: %v", err)
			}
			must(t, stage(cluster.Machines["node-b"], id))
		})
	}
}

func TestALeaseIsRenewedByItsHolderOnly(t *testing.T) {
	cluster, a, id := staged(t, "node-a", "node-b")
	seen := func() string {
		lease, err := cluster.Leases.Lease(background, id)
		must(t, err)
		return store.SeenIn(lease, "node-a")
	}
	before := seen()
	time.Sleep(time.Millisecond)
	must(t, a.Renew(background))
	after := seen()
	if before == after {
		t.Fatal("the lease was not renewed")
	}
	must(t, cluster.Machines["node-b"].Renew(background))
	if seen() != after {
		t.Fatal("another node renewed the lease")
	}
	must(t, unstage(a, id))
	if seen() != "none for node-a" {
		t.Fatalf("the lease is left: %s", seen())
	}
}

// The flash is removed and the record is not: the next sweep finds what is left.
func TestAnInterruptedRemovalOfFlashIsRepeated(t *testing.T) {
	cluster, a, id := staged(t, "node-a")
	must(t, unstage(a, id))
	_, err := cluster.Controller.DeleteVolume(background, &csi.DeleteVolumeRequest{VolumeId: id})
	must(t, err)
	failed := false
	cluster.Records.PrependReactor("update", "lardervolumes", func(clienttesting.Action) (bool, runtime.Object, error) {
		fails := !failed
		failed = true
		return fails, nil, errors.New("interrupted")
	})
	if a.Sweep(background) == nil {
		t.Fatal("the sweep was not interrupted")
	}
	must(t, a.Sweep(background))
	if _, err := cluster.Store.Volume(background, id); !apierrors.IsNotFound(err) {
		t.Fatalf("the record is left: %v", err)
	}
}

// The record and the node's own say that it serves, and the logical volume has no block device.
func TestAStageAfterARebootActivatesTheFlash(t *testing.T) {
	_, a, id := staged(t, "node-a")
	before := a.Flash.Activated
	a.Mounts.MountPoints = nil
	must(t, stage(a, id))
	if a.Flash.Activated == before {
		t.Fatal("the flash was not activated")
	}
	must(t, unstage(a, id))
}

func TestAHelperPodThatWasDeletedByHandIsMadeAgain(t *testing.T) {
	cluster, a, id := staged(t, "node-a")
	must(t, cluster.Objects.CoreV1().Pods(testrig.Namespace).Delete(background, controller.PodName(id, 1), deleteOptions))
	cluster.Eventually("the server runs again", func() bool { return len(cluster.Running(id)) == 1 })
	must(t, stage(a, id))
	must(t, unstage(a, id))
}

// However often it is examined: 10,000 volumes in use would otherwise take all requests that the controller may make.
func TestAVolumeInUseCostsTheAPIServerNothing(t *testing.T) {
	cluster, a, id := staged(t, "node-a")
	pods := cluster.Objects.CoreV1().Pods(testrig.Namespace)
	cluster.Records.ClearActions()
	for n := range 50 {
		patch := fmt.Sprintf(`{"metadata":{"annotations":{"round":"%d"}}}`, n)
		_, err := pods.Patch(background, controller.PodName(id, 1), types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		must(t, err)
		time.Sleep(2 * time.Millisecond)
	}
	// It is examined: the pod that is deleted is made again.
	must(t, pods.Delete(background, controller.PodName(id, 1), deleteOptions))
	cluster.Eventually("the helper pod is made again", func() bool {
		pod, err := pods.Get(background, controller.PodName(id, 1), metav1.GetOptions{})
		return err == nil && pod.Annotations["round"] == ""
	})
	reads := 0
	for _, action := range cluster.Records.Actions() {
		if action.Matches("get", "lardervolumes") {
			reads++
		}
	}
	if reads < 1 || reads > 5 {
		t.Fatalf("the record was read %d times in 50 rounds without a step and one with a step", reads)
	}
	must(t, unstage(a, id))
}

func TestANodeThatWasInstalledAgainGetsANewGrant(t *testing.T) {
	cluster, a, id := staged(t, "node-a")
	must(t, a.Flash.Remove(background, id))
	must(t, removeAll(a.Data))
	a.Mounts.MountPoints = nil
	wants(t, stage(a, id), codes.Aborted, "has no record of generation 1")
	cluster.Eventually("the volume is staged again", func() bool { return stage(a, id) == nil })
	if got := record(t, cluster, id); got.Generation != 2 || a.Flash.Created != 2 {
		t.Fatalf("%+v, flash was made %d times", got, a.Flash.Created)
	}
}

// blkid reports a device that returns errors as one without a file system.
func TestADeviceThatCannotBeReadIsNotFormatted(t *testing.T) {
	cluster := testrig.New(t, "node-a")
	a := cluster.Machines["node-a"]
	id := create(t, cluster, "db", nil)
	a.Devices.Unreadable = errors.New("input/output error")
	wants(t, stage(a, id), codes.Internal, "input/output error")
	if mounted := a.Mounts.MountPoints; len(mounted) != 0 {
		t.Fatalf("%+v", mounted)
	}
	a.Devices.Unreadable = nil
	must(t, stage(a, id))
}

func TestAnUnstageRemovesTheSocketsOfAServerThatWasKilled(t *testing.T) {
	_, a, id := staged(t, "node-a")
	socket := filepath.Join(a.Data, node.VolumesDir, id, node.ControlFile(1))
	must(t, os.WriteFile(socket, nil, 0o600))
	must(t, unstage(a, id))
	if _, err := os.Lstat(socket); !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("the socket is left: %v", err)
	}
}

func TestAReadOnlyPublishIsMountedReadOnly(t *testing.T) {
	_, a, id := staged(t, "node-a")
	for range 2 {
		must(t, publish(a, id, target(a), mountOf("ext4"), true))
	}
	points := a.Mounts.MountPoints
	if last := points[len(points)-1]; len(points) != 2 || last.Path != target(a) || !slices.Contains(last.Opts, "ro") {
		t.Fatalf("%+v", points)
	}
}

// A copy of the mount in another mount namespace: its file system has data that was not written yet.
func TestAVolumeThatIsMountedElsewhereIsNotReleased(t *testing.T) {
	cluster, a, id := staged(t, "node-a")
	a.Devices.Used = true
	wants(t, unstage(a, id), codes.FailedPrecondition, "another mount namespace")
	if running := cluster.Running(id); len(running) != 1 {
		t.Fatalf("servers on %v", running)
	}
	a.Devices.Used = false
	must(t, unstage(a, id))
}

// A crash between the mount and the extension of the file system.
func TestARepeatedStageExtendsTheFileSystem(t *testing.T) {
	cluster := testrig.New(t, "node-a")
	a := cluster.Machines["node-a"]
	id := create(t, cluster, "db", nil)
	resizer := &failing{err: errors.New("interrupted")}
	a.Resizer = resizer
	wants(t, stage(a, id), codes.Internal, "interrupted")
	resizer.err = nil
	must(t, stage(a, id))
	if resizer.done != 1 {
		t.Fatalf("the file system was extended %d times", resizer.done)
	}
}

type failing struct {
	err  error
	done int
}

func (f *failing) NeedResize(string, string) (bool, error) { return true, nil }

func (f *failing) Resize(string, string) (bool, error) {
	if f.err == nil {
		f.done++
	}
	return f.err == nil, f.err
}
