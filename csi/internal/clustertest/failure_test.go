// SPDX-License-Identifier: MIT OR Apache-2.0

// Failures of the control plane and of the controller, in the middle of what they do.

package clustertest

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc/codes"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"larder.dev/csi/internal/fence"
	"larder.dev/csi/internal/settings"
	"larder.dev/csi/internal/store"
)

// life creates a volume, extends it, uses it on the node if there is one, and deletes it. Each step is repeated until it succeeds.
func (r *rig) life(t *testing.T, name string, node *machine) {
	t.Helper()
	id := r.create(t, name)
	eventually(t, id+" is extended", bound, func() error {
		ctx, cancel := context.WithTimeout(background, patience)
		defer cancel()
		_, err := r.plugin.ControllerExpandVolume(ctx, &csi.ControllerExpandVolumeRequest{
			VolumeId: id, CapacityRange: &csi.CapacityRange{RequiredBytes: 20 * gib},
		})
		return err
	})
	if node == nil {
		r.destroy(t, id)
		return
	}
	staged(t, node, id)
	if got := r.record(t, id); got.Holder != node.Name || got.Phase != fence.Serving {
		t.Fatalf("%+v", got)
	}
	unstaged(t, node, id)
	if got := r.record(t, id); got.Holder != "" || got.Generation != 1 {
		t.Fatalf("%+v", got)
	}
	r.destroy(t, id, node)
}

// The requests by which the controller changes objects in the life of a volume. It is killed before and after each of them.
func TestTheControllerIsKilledAtEachStep(t *testing.T) {
	r := setup(t)
	a := r.machine(t, "kill-a")
	for _, step := range []struct {
		name, method, object string
		node                 *machine
	}{
		{"the record is created", "POST", "lardervolumes", a},
		{"the backing claim is created", "POST", "persistentvolumeclaims", a},
		{"the backing claim is extended", "PUT", "persistentvolumeclaims/ID", a},
		{"the size is recorded", "PUT", "lardervolumes/ID", a},
		{"the helper pod is created", "POST", "pods", a},
		{"the helper pod is deleted", "DELETE", "pods/ID-g1", a},
		{"the volume is set free", "PUT", "lardervolumes/ID/status", a},
		{"the record is deleted", "DELETE", "lardervolumes/ID", a},
		{"the backing claim is deleted", "DELETE", "persistentvolumeclaims/ID", a},
		{"the lease is deleted", "DELETE", "leases/ID", a},
		{"the record of an unused volume is deleted", "DELETE", "lardervolumes/ID", nil},
		{"the backing claim of an unused volume is deleted", "DELETE", "persistentvolumeclaims/ID", nil},
	} {
		for _, when := range []string{"before", "after"} {
			t.Run(when+" "+step.name, func(t *testing.T) {
				defer r.proxy.intercept(nil)
				name := "kill-" + t.Name()
				killed := r.killAt(step.method, "/"+strings.ReplaceAll(step.object, "ID", settings.VolumeID(name)), when == "after")
				r.life(t, name, step.node)
				select {
				case <-killed:
				case <-time.After(bound):
					t.Fatal("the controller did not send the request, and was not killed")
				}
			})
		}
	}
}

// killAt kills the controller at its first request of this method for this object, before or after it reaches the API server. The
// channel is closed then.
func (r *rig) killAt(method, object string, after bool) <-chan struct{} {
	killed := make(chan struct{})
	var once sync.Once
	r.proxy.intercept(func(request *http.Request, writer http.ResponseWriter, forward func(http.ResponseWriter)) {
		kills := false
		// Others use the rights of the controller too.
		if request.Method == method && strings.HasSuffix(request.URL.Path, object) && strings.HasPrefix(request.UserAgent(), "larder-csi/") {
			once.Do(func() { kills = true })
		}
		if !kills {
			forward(writer)
			return
		}
		if after {
			forward(httptest.NewRecorder())
		}
		r.controller.kill()
		close(killed)
		panic(http.ErrAbortHandler)
	})
	return killed
}

func TestTheAPIServerAndEtcdAreKilled(t *testing.T) {
	r := setup(t)
	a, b := r.machine(t, "restart-a"), r.machine(t, "restart-b")
	used := r.create(t, "restart-used")
	staged(t, a, used)
	before := r.record(t, used)
	for round, programs := range [][]*process{{r.api}, {r.etcd}, {r.api, r.etcd}} {
		var lives sync.WaitGroup
		for n, node := range []*machine{a, b} {
			lives.Add(1)
			go func() {
				defer lives.Done()
				t.Run(fmt.Sprintf("life %d of round %d", n, round), func(t *testing.T) { r.life(t, fmt.Sprintf("restart-%d-%d", round, n), node) })
			}()
		}
		eventually(t, "a volume is being created or used", bound, func() error {
			volumes, err := r.store.Volumes(background)
			if err == nil && len(volumes) < 2 {
				return fmt.Errorf("%d volumes", len(volumes))
			}
			return err
		})
		must(t, r.restart(programs...))
		lives.Wait()
	}
	// What was in use meanwhile still is: same grant, same pod, server not stopped.
	if after := r.record(t, used); after.Generation != before.Generation || after.Holder != a.Name || after.Phase != fence.Serving {
		t.Fatalf("%+v became %+v", before, after)
	}
	if _, err := a.Server("").Status(background); err == nil {
		t.Fatal("a server without a volume answers")
	}
	must(t, a.stage(background, used))
	r.destroy(t, used, a)
}

// A second controller runs beside the first, as after a Deployment was changed by hand: both take each step, and one succeeds.
func TestTwoControllers(t *testing.T) {
	r := setup(t)
	a, b := r.machine(t, "both-a"), r.machine(t, "both-b")
	second := &process{name: "larder-csi (second)", log: r.file("second.log"), env: r.controller.env}
	for _, arg := range r.controller.args {
		if strings.HasPrefix(arg, "--socket=") {
			arg = "--socket=" + r.file("second/csi.sock")
		}
		second.args = append(second.args, arg)
	}
	must(t, second.start())
	defer second.stop()
	eventually(t, "the second controller serves", bound, func() error {
		_, err := os.Stat(r.file("second/csi.sock"))
		return err
	})
	for round := range 3 {
		id := r.create(t, fmt.Sprintf("both-%d", round))
		for _, node := range []*machine{a, b, a} {
			staged(t, node, id)
			pods, err := r.objects.CoreV1().Pods(namespace).List(background, metav1.ListOptions{LabelSelector: store.VolumeLabel + "=" + id})
			must(t, err)
			if len(pods.Items) != 1 {
				t.Fatalf("%d helper pods", len(pods.Items))
			}
			unstaged(t, node, id)
		}
		if got := r.record(t, id); got.Generation != 3 {
			t.Fatalf("%+v", got)
		}
		swept(t, b, id)
		r.destroy(t, id, a, b)
	}
	select {
	case <-second.running():
		t.Fatal(second.tail(20))
	default:
	}
}

func TestDeletionInEachOrder(t *testing.T) {
	r := setup(t)
	a := r.machine(t, "delete-a")
	records := r.records.Resource(store.VolumeResource).Namespace(namespace)
	claims := r.objects.CoreV1().PersistentVolumeClaims(namespace)

	t.Run("a volume that was never used", func(t *testing.T) {
		id := r.create(t, "delete-unused")
		must(t, r.deleteVolume(id))
		must(t, r.deleteVolume(id))
		r.nothingLeft(t, id, a)
	})
	t.Run("a staged volume", func(t *testing.T) {
		id := r.create(t, "delete-staged")
		staged(t, a, id)
		wants(t, r.deleteVolume(id), codes.FailedPrecondition)
		r.destroy(t, id, a)
	})
	t.Run("the record by hand, while it is staged", func(t *testing.T) {
		id := r.create(t, "delete-record")
		staged(t, a, id)
		must(t, records.Delete(background, id, metav1.DeleteOptions{}))
		if got, err := r.store.Volume(background, id); err != nil || got.DeletionTimestamp == nil || got.Status.Holder != a.Name {
			t.Fatalf("%+v, %v", got, err)
		}
		r.destroy(t, id, a)
	})
	t.Run("the record by hand, then the volume", func(t *testing.T) {
		id := r.create(t, "delete-record-first")
		must(t, records.Delete(background, id, metav1.DeleteOptions{}))
		eventually(t, "the record is gone", bound, func() error {
			_, err := r.store.Volume(background, id)
			return isGone("record", err)
		})
		// The data is still there: only a deletion of the volume deletes it.
		if claim, err := claims.Get(background, id, metav1.GetOptions{}); err != nil || claim.DeletionTimestamp != nil {
			t.Fatalf("the backing claim was deleted with the record: %v", err)
		}
		must(t, r.deleteVolume(id))
		r.nothingLeft(t, id, a)
	})
	t.Run("the backing claim by hand, while it is staged", func(t *testing.T) {
		id := r.create(t, "delete-claim")
		staged(t, a, id)
		must(t, claims.Delete(background, id, metav1.DeleteOptions{}))
		if claim, err := claims.Get(background, id, metav1.GetOptions{}); err != nil || claim.DeletionTimestamp == nil {
			t.Fatalf("the claim of a helper pod must stay: %v", err)
		}
		must(t, a.stage(background, id))
		r.destroy(t, id, a)
	})
	t.Run("the node of its flash before it", func(t *testing.T) {
		b := r.machine(t, "delete-b")
		id := r.create(t, "delete-node")
		staged(t, b, id)
		unstaged(t, b, id)
		b.lose(true)
		must(t, r.objects.CoreV1().Nodes().Delete(background, b.Name, metav1.DeleteOptions{}))
		must(t, r.deleteVolume(id))
		r.nothingLeft(t, id)
	})
}

// A node takes the volume between the two requests of a deletion.
func TestADeletionThatWasOvertakenByAStageDeletesNothing(t *testing.T) {
	r := setup(t)
	a := r.machine(t, "overtake-a")
	id := r.create(t, "overtake")
	defer r.proxy.intercept(nil)
	arrived, staging := make(chan struct{}), make(chan struct{})
	var once sync.Once
	r.proxy.intercept(func(request *http.Request, writer http.ResponseWriter, forward func(http.ResponseWriter)) {
		if request.Method == http.MethodDelete && strings.HasSuffix(request.URL.Path, "/lardervolumes/"+id) {
			once.Do(func() { close(arrived); <-staging })
		}
		forward(writer)
	})
	deleted := make(chan error, 1)
	go func() { deleted <- r.deleteVolume(id) }()
	select {
	case <-arrived:
	case err := <-deleted:
		t.Fatalf("the deletion did not reach the API server: %v", err)
	case <-time.After(bound):
		t.Fatal("the deletion did not reach the API server")
	}
	err := a.stage(background, id)
	close(staging)
	must(t, err)
	wants(t, <-deleted, codes.Aborted)
	if got, err := r.store.Volume(background, id); err != nil || got.DeletionTimestamp != nil {
		t.Fatalf("a volume in use is being deleted: %v", err)
	}
	if claim, err := r.objects.CoreV1().PersistentVolumeClaims(namespace).Get(background, id, metav1.GetOptions{}); err != nil || claim.DeletionTimestamp != nil {
		t.Fatalf("the backing claim of a volume in use is being deleted: %v", err)
	}
	r.proxy.intercept(nil)
	r.destroy(t, id, a)
	if _, err := r.store.Volume(background, id); !apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}
