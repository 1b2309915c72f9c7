// SPDX-License-Identifier: MIT OR Apache-2.0

// Nodes: a kubelet that is played, and the node plugin.

package clustertest

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	coordination "k8s.io/api/coordination/v1"
	core "k8s.io/api/core/v1"
	storage "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"larder.dev/csi/internal/store"
	"larder.dev/csi/internal/testrig"
)

// machine is a node of the cluster.
type machine struct {
	*testrig.Machine
	rig *rig

	mutex sync.Mutex
	lost  bool
	// servers has the volume of each helper pod that runs, staged the volume of each pod for which one is staged.
	servers map[string]string
	staged  map[string]string
	busy    map[string]bool
	work    sync.WaitGroup
}

// machine makes a node whose kubelet and node plugin run until the test ends.
func (r *rig) machine(t *testing.T, name string) *machine {
	t.Helper()
	m := &machine{Machine: testrig.NewMachine(t, name, store.Client{}, store.Leases{}), rig: r,
		servers: map[string]string{}, staged: map[string]string{}, busy: map[string]bool{}}
	m.Bound = 20 * time.Second
	must(t, m.register(background))
	var err error
	m.Store, m.Leases, err = r.clientsOf(background, name)
	must(t, err)
	ctx, cancel := context.WithCancel(background)
	m.work.Add(3)
	go func() {
		defer m.work.Done()
		every(ctx, time.Second, m.heartbeat)
	}()
	go func() {
		defer m.work.Done()
		every(ctx, 100*time.Millisecond, m.kubelet)
	}()
	go func() {
		defer m.work.Done()
		every(ctx, 2*time.Second, m.plugin)
	}()
	t.Cleanup(func() {
		cancel()
		m.work.Wait()
		_ = r.objects.CoreV1().Nodes().Delete(background, name, metav1.DeleteOptions{})
	})
	return m
}

// register creates what a kubelet creates for its node and its drivers.
func (m *machine) register(ctx context.Context) error {
	info, err := m.NodeGetInfo(ctx, nil)
	if err != nil {
		return err
	}
	node := &core.Node{ObjectMeta: metav1.ObjectMeta{
		Name: m.Name, Labels: info.GetAccessibleTopology().GetSegments(),
		Annotations: map[string]string{"volumes.kubernetes.io/controller-managed-attach-detach": "true"},
	}}
	made, err := m.rig.objects.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	owner := metav1.OwnerReference{APIVersion: "v1", Kind: "Node", Name: made.Name, UID: made.UID}
	drivers := []storage.CSINodeDriver{
		{Name: store.DriverName, NodeID: info.GetNodeId(), TopologyKeys: []string{store.TopologyKey}}, {Name: backingDriver, NodeID: m.Name},
	}
	_, err = m.rig.objects.StorageV1().CSINodes().Create(ctx, &storage.CSINode{
		ObjectMeta: metav1.ObjectMeta{Name: m.Name, OwnerReferences: []metav1.OwnerReference{owner}},
		Spec:       storage.CSINodeSpec{Drivers: drivers},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return err
	}
	m.heartbeat(ctx)
	return nil
}

// lose stops the kubelet and the node plugin, while servers on the node run on; or lets them continue.
func (m *machine) lose(lost bool) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.lost = lost
}

func (m *machine) isLost() bool {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.lost
}

// heartbeat reports that the node is ready.
func (m *machine) heartbeat(ctx context.Context) {
	if m.isLost() {
		return
	}
	nodes := m.rig.objects.CoreV1().Nodes()
	node, err := nodes.Get(ctx, m.Name, metav1.GetOptions{})
	if err != nil {
		return
	}
	now := metav1.Now()
	node.Status.Conditions = []core.NodeCondition{{Type: core.NodeReady, Status: core.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: now, LastTransitionTime: now}}
	node.Status.Allocatable = core.ResourceList{core.ResourceCPU: resource.MustParse("8"), core.ResourceMemory: resource.MustParse("64Gi"), core.ResourcePods: resource.MustParse("100")}
	node.Status.Capacity = node.Status.Allocatable
	_, _ = nodes.UpdateStatus(ctx, node, metav1.UpdateOptions{})
	leases := m.rig.objects.CoordinationV1().Leases("kube-node-lease")
	lease := &coordination.Lease{ObjectMeta: metav1.ObjectMeta{Name: m.Name}}
	found, err := leases.Get(ctx, m.Name, metav1.GetOptions{})
	if err == nil {
		lease = found
	}
	lease.Spec = coordination.LeaseSpec{HolderIdentity: &m.Name, LeaseDurationSeconds: ptr.To(int32(40)), RenewTime: ptr.To(metav1.NowMicro())}
	if err == nil {
		_, _ = leases.Update(ctx, lease, metav1.UpdateOptions{})
	} else if apierrors.IsNotFound(err) {
		_, _ = leases.Create(ctx, lease, metav1.CreateOptions{})
	}
}

// plugin does what the node plugin does without a request, more often.
func (m *machine) plugin(ctx context.Context) {
	if m.isLost() {
		return
	}
	_ = m.Renew(ctx)
	_ = m.Sweep(ctx)
	_ = m.Report(ctx)
}

// kubelet is one round: each pod of the node gets its next step, and what is left of pods that are gone is ended.
func (m *machine) kubelet(ctx context.Context) {
	if m.isLost() {
		return
	}
	pods, err := m.rig.objects.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + m.Name})
	if err != nil {
		return
	}
	exists := map[string]bool{}
	for n := range pods.Items {
		pod := &pods.Items[n]
		exists[string(pod.UID)] = true
		m.once(string(pod.UID), func() { m.advance(ctx, pod) })
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	for uid, id := range m.servers {
		if !exists[uid] {
			m.Servers.Run(id, false)
			delete(m.servers, uid)
		}
	}
	for uid, id := range m.staged {
		if !exists[uid] {
			m.start(uid, func() { _ = m.unmount(ctx, uid, id) })
		}
	}
}

// once runs a step in the background unless one of the same pod runs.
func (m *machine) once(uid string, step func()) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.start(uid, step)
}

func (m *machine) start(uid string, step func()) {
	if m.busy[uid] {
		return
	}
	m.busy[uid] = true
	m.work.Add(1)
	go func() {
		defer m.work.Done()
		step()
		m.mutex.Lock()
		defer m.mutex.Unlock()
		delete(m.busy, uid)
	}()
}

// advance takes the next step of a pod: its volumes and containers start or end.
func (m *machine) advance(ctx context.Context, pod *core.Pod) {
	uid, id := string(pod.UID), pod.Labels[store.VolumeLabel]
	volume, err := m.volume(ctx, pod)
	if err != nil {
		return
	}
	switch {
	case pod.DeletionTimestamp != nil && id != "":
		m.serve(uid, id, false)
		m.remove(ctx, pod)
	case pod.DeletionTimestamp != nil:
		if volume == "" || m.unmount(ctx, uid, volume) == nil {
			m.remove(ctx, pod)
		}
	case pod.Status.Phase == core.PodRunning:
	case id != "":
		nodes, err := m.rig.attachedTo(ctx, id)
		if err == nil && len(nodes) == 1 && nodes[0] == m.Name {
			m.serve(uid, id, true)
			m.runs(ctx, pod)
		}
	case volume == "" || m.mount(ctx, uid, volume) == nil:
		m.runs(ctx, pod)
	}
}

func (m *machine) serve(uid, id string, run bool) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.Servers.Run(id, run)
	if run {
		m.servers[uid] = id
	} else {
		delete(m.servers, uid)
	}
}

// volume is the id of the volume of a pod in the namespace of the tests.
func (m *machine) volume(ctx context.Context, pod *core.Pod) (string, error) {
	if pod.Namespace != work {
		return "", nil
	}
	for _, volume := range pod.Spec.Volumes {
		if volume.PersistentVolumeClaim != nil {
			return m.rig.volumeOf(ctx, volume.PersistentVolumeClaim.ClaimName)
		}
	}
	return "", nil
}

func (m *machine) stagingPath(id string) string {
	return filepath.Join(m.Kubelet, "plugins", id, "globalmount")
}
func (m *machine) target(uid string) string { return filepath.Join(m.Kubelet, "pods", uid, "mount") }

// mount stages and publishes a volume for a pod.
func (m *machine) mount(ctx context.Context, uid, id string) error {
	m.mutex.Lock()
	m.staged[uid] = id
	m.mutex.Unlock()
	if err := m.stage(ctx, id); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(m.target(uid)), 0o750); err != nil {
		return err
	}
	_, err := m.NodePublishVolume(ctx, &csi.NodePublishVolumeRequest{
		VolumeId: id, StagingTargetPath: m.stagingPath(id), TargetPath: m.target(uid), VolumeCapability: mounted(),
	})
	return err
}

func (m *machine) stage(ctx context.Context, id string) error {
	if err := os.MkdirAll(filepath.Dir(m.stagingPath(id)), 0o750); err != nil {
		return err
	}
	_, err := m.NodeStageVolume(ctx, &csi.NodeStageVolumeRequest{
		VolumeId: id, StagingTargetPath: m.stagingPath(id), VolumeCapability: mounted(),
	})
	return err
}

func (m *machine) unstage(ctx context.Context, id string) error {
	_, err := m.NodeUnstageVolume(ctx, &csi.NodeUnstageVolumeRequest{VolumeId: id, StagingTargetPath: m.stagingPath(id)})
	return err
}

// unmount is the reverse of mount.
func (m *machine) unmount(ctx context.Context, uid, id string) error {
	if _, err := m.NodeUnpublishVolume(ctx, &csi.NodeUnpublishVolumeRequest{VolumeId: id, TargetPath: m.target(uid)}); err != nil {
		return err
	}
	if err := m.unstage(ctx, id); err != nil {
		return err
	}
	m.mutex.Lock()
	defer m.mutex.Unlock()
	delete(m.staged, uid)
	return nil
}

// runs reports that a pod runs, remove that its containers have ended.
func (m *machine) runs(ctx context.Context, pod *core.Pod) {
	pod.Status.Phase = core.PodRunning
	pod.Status.Conditions = []core.PodCondition{
		{Type: core.PodScheduled, Status: core.ConditionTrue}, {Type: core.PodReady, Status: core.ConditionTrue},
		{Type: core.ContainersReady, Status: core.ConditionTrue}, {Type: core.PodInitialized, Status: core.ConditionTrue},
	}
	_, _ = m.rig.objects.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
}

func (m *machine) remove(ctx context.Context, pod *core.Pod) {
	_ = m.rig.objects.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: ptr.To(int64(0)), Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
	})
}

// volumeOf is the id of the volume of a claim, which must be bound.
func (r *rig) volumeOf(ctx context.Context, claim string) (string, error) {
	found, err := r.objects.CoreV1().PersistentVolumeClaims(work).Get(ctx, claim, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	if found.Status.Phase != core.ClaimBound {
		return "", fmt.Errorf("claim %s is %s", claim, found.Status.Phase)
	}
	volume, err := r.objects.CoreV1().PersistentVolumes().Get(ctx, found.Spec.VolumeName, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return volume.Spec.CSI.VolumeHandle, nil
}
