// SPDX-License-Identifier: MIT OR Apache-2.0

// The kubelet and the scheduler for helper pods: a pod is bound to the node of its affinity, its containers are run, a container
// that ends is started again, and a deleted pod is removed from the API server after its containers have ended.

package lab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	core "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"larder.dev/csi/internal/control"
	"larder.dev/csi/internal/device"
	"larder.dev/csi/internal/node"
	"larder.dev/csi/internal/store"
	"larder.dev/csi/internal/testrig"
)

// restartAfter is the kubelet's pause before a container is started again.
const restartAfter = time.Second

type kubelet struct {
	l      *lab
	cancel context.CancelFunc
	done   sync.WaitGroup

	mutex sync.Mutex
	pods  map[string]*running
}

// running is a pod on this node.
type running struct {
	volume string
	stop   chan struct{}
	ended  chan struct{}

	mutex    sync.Mutex
	server   *container
	restarts int
	failure  error
}

func newKubelet(l *lab) *kubelet {
	ctx, cancel := context.WithCancel(background)
	k := &kubelet{l: l, cancel: cancel, pods: map[string]*running{}}
	k.done.Add(2)
	go func() {
		defer k.done.Done()
		for ; ctx.Err() == nil; sleep(ctx, 10*time.Second) {
			if err := l.api.beat(ctx, l.node, true); err != nil && ctx.Err() == nil {
				fmt.Printf("kubelet: heartbeat: %v\n", err)
			}
		}
	}()
	go func() {
		defer k.done.Done()
		for ; ctx.Err() == nil; sleep(ctx, 100*time.Millisecond) {
			if err := k.sync(ctx); err != nil && ctx.Err() == nil {
				fmt.Printf("kubelet: %v\n", err)
			}
		}
	}()
	return k
}

func sleep(ctx context.Context, span time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(span):
	}
}

func (k *kubelet) end() {
	k.cancel()
	k.done.Wait()
}

func (k *kubelet) sync(ctx context.Context) error {
	pods := k.l.api.CoreV1().Pods(namespace)
	list, err := pods.List(ctx, metav1.ListOptions{LabelSelector: store.VolumeLabel})
	if err != nil {
		return err
	}
	var failed []error
	seen := map[string]bool{}
	for n := range list.Items {
		pod := &list.Items[n]
		switch {
		case pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil && testrig.On(pod) == k.l.node:
			failed = append(failed, pods.Bind(ctx, &core.Binding{
				ObjectMeta: metav1.ObjectMeta{Name: pod.Name}, Target: core.ObjectReference{Kind: "Node", Name: k.l.node},
			}, metav1.CreateOptions{}))
		case pod.Spec.NodeName == k.l.node:
			seen[string(pod.UID)] = true
			failed = append(failed, k.pod(ctx, pod))
		}
	}
	k.mutex.Lock()
	defer k.mutex.Unlock()
	for uid, pod := range k.pods {
		if !seen[uid] { // removed from the API server by another party
			pod.end()
		}
	}
	return errors.Join(failed...)
}

func (k *kubelet) pod(ctx context.Context, pod *core.Pod) error {
	k.mutex.Lock()
	here := k.pods[string(pod.UID)]
	if here == nil && pod.DeletionTimestamp == nil {
		here = &running{volume: pod.Labels[store.VolumeLabel], stop: make(chan struct{}), ended: make(chan struct{})}
		k.pods[string(pod.UID)] = here
		go here.run(k.l, pod)
		k.mutex.Unlock()
		pod.Status.Phase = core.PodRunning
		_, err := k.l.api.CoreV1().Pods(namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
		return err
	}
	k.mutex.Unlock()
	if pod.DeletionTimestamp == nil {
		return nil
	}
	if here != nil {
		here.end()
		select {
		case <-here.ended:
		default:
			return nil
		}
	}
	err := k.l.api.CoreV1().Pods(namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To(int64(0)), Preconditions: &metav1.Preconditions{UID: &pod.UID},
	})
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

// device is the device of a backing volume on this node.
func (k *kubelet) device(claim string) (string, error) {
	found, err := k.l.api.CoreV1().PersistentVolumeClaims(namespace).Get(background, claim, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if found.Status.Phase != core.ClaimBound {
		return "", fmt.Errorf("claim %s is not bound", claim)
	}
	volume, err := k.l.api.CoreV1().PersistentVolumes().Get(background, found.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return "/dev/lab/" + volume.Spec.CSI.VolumeHandle, nil
}

func (r *running) note(err error) {
	fmt.Printf("kubelet: pod of %s: %v\n", r.volume, err)
	r.mutex.Lock()
	defer r.mutex.Unlock()
	r.failure = err
}

func (r *running) stopping() bool {
	select {
	case <-r.stop:
		return true
	default:
		return false
	}
}

// run runs the containers until the pod is deleted.
func (r *running) run(l *lab, pod *core.Pod) {
	defer close(r.ended)
	directory := pod.Spec.Volumes[1].HostPath.Path
	for ; !r.stopping(); time.Sleep(restartAfter) {
		device, err := l.kubelet.device(pod.Spec.Volumes[0].PersistentVolumeClaim.ClaimName)
		if err == nil {
			err = originContainer(l, pod, directory, device)
		}
		if err == nil {
			break
		}
		r.note(fmt.Errorf("first container: %w", err))
	}
	for !r.stopping() {
		server, err := serverContainer(l, pod, directory)
		if err != nil {
			r.note(err)
			time.Sleep(restartAfter)
			continue
		}
		r.mutex.Lock()
		r.server = server
		r.mutex.Unlock()
		select {
		case <-server.ended:
			r.note(fmt.Errorf("the server ended: %v", server.state()))
			select {
			case <-r.stop:
			case <-time.After(restartAfter):
			}
			r.mutex.Lock()
			r.restarts++
			r.mutex.Unlock()
		case <-r.stop:
			_ = server.signal(syscall.SIGTERM)
			select {
			case <-server.ended:
			case <-time.After(time.Duration(*pod.Spec.TerminationGracePeriodSeconds) * time.Second):
				fmt.Printf("kubelet: pod %s exceeded its grace period\n", pod.Name)
				_ = server.signal(syscall.SIGKILL)
				<-server.ended
			}
		}
	}
}

// end begins the end of the pod.
func (r *running) end() {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if !r.stopping() {
		close(r.stop)
	}
}

// kill kills the server's container with all its processes.
func (r *running) kill() {
	r.mutex.Lock()
	defer r.mutex.Unlock()
	if r.server != nil {
		_ = r.server.signal(syscall.SIGKILL)
	}
}

// of is the pod of a volume on this node.
func (k *kubelet) of(id string) *running {
	k.mutex.Lock()
	defer k.mutex.Unlock()
	for _, pod := range k.pods {
		select {
		case <-pod.ended:
		default:
			if pod.volume == id {
				return pod
			}
		}
	}
	return nil
}

// killServer kills the server of a volume (-9), and waits until the kubelet has started it again.
func (k *kubelet) killServer(id string) error {
	pod := k.of(id)
	if pod == nil {
		return errors.New("no pod of the volume runs here")
	}
	pod.mutex.Lock()
	before := pod.restarts
	pod.mutex.Unlock()
	pod.kill()
	return eventually(30*time.Second, func() error {
		pod.mutex.Lock()
		defer pod.mutex.Unlock()
		if pod.restarts == before {
			return errors.New("the server was not started again")
		}
		return nil
	})
}

// holds stops the server of a volume (SIGSTOP) while something is done: reads and writes of the volume wait.
func (k *kubelet) holds(id string, do func() error) error {
	pod := k.of(id)
	if pod == nil {
		return errors.New("no pod of the volume runs here")
	}
	pod.mutex.Lock()
	server := pod.server
	pod.mutex.Unlock()
	if server == nil {
		return errors.New("the pod has no server")
	}
	if err := server.signal(syscall.SIGSTOP); err != nil {
		return err
	}
	defer func() { _ = server.signal(syscall.SIGCONT) }()
	err := eventually(10*time.Second, func() error {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", server.command.Process.Pid))
		if err == nil && !strings.Contains(string(text), "(larder) T ") {
			err = fmt.Errorf("the server is not stopped: %.64s", text)
		}
		return err
	})
	if err != nil {
		return err
	}
	return do()
}

// log is that of the servers of a volume on this node, from a place on, and its end.
func (l *lab) log(id string, from int64) (string, int64) {
	text, err := os.ReadFile(filepath.Join(l.share, "logs", id+"-"+l.node+".log"))
	if err != nil || int64(len(text)) < from {
		return "", from
	}
	return string(text[from:]), int64(len(text))
}

// place is the path of the volume's block device, as the plugin has recorded it.
func (v *volume) place() (string, error) {
	text, err := os.ReadFile(filepath.Join(dataDir, node.VolumesDir, v.id, "volume.json"))
	if err != nil {
		return "", err
	}
	var kept struct {
		Place device.Place `json:"place"`
	}
	err = json.Unmarshal(text, &kept)
	return kept.Place.Path(), err
}

// unitsUsed is the number of units in the cache of a staged volume.
func (v *volume) unitsUsed() (int64, error) {
	record, err := v.l.api.record(v.id)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(background, 10*time.Second)
	defer cancel()
	socket := filepath.Join(dataDir, node.VolumesDir, v.id, node.ControlFile(record.Generation))
	got, err := control.Client{Socket: socket}.Status(ctx)
	return got.UnitsUsed, err
}
