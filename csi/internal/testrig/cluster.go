// SPDX-License-Identifier: MIT OR Apache-2.0

// The cluster: controller, kubelets and their pods.

package testrig

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	dynamicfake "k8s.io/client-go/dynamic/fake"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/mount-utils"
	testingexec "k8s.io/utils/exec/testing"

	"larder.dev/csi/internal/controller"
	"larder.dev/csi/internal/node"
	"larder.dev/csi/internal/safepath"
	"larder.dev/csi/internal/store"
)

// Namespace is that of the driver in the cluster.
const Namespace = "larder"

// Launch starts the server of a helper pod and returns how it is stopped.
type Launch func(machine *Machine, id string) (stop func())

// Cluster is an API server, a controller and nodes.
type Cluster struct {
	t          testing.TB
	Objects    *fake.Clientset
	Records    *dynamicfake.FakeDynamicClient
	Store      store.Client
	Leases     store.Leases
	Controller *controller.Controller
	Machines   map[string]*Machine

	mutex   sync.Mutex
	launch  Launch
	running map[string]func()
}

// Machine is a node of the cluster.
type Machine struct {
	*node.Node
	Kubelet string
	Flash   *Flash
	Devices *Devices
	Mounts  *mount.FakeMounter
	Servers *Servers

	mutex    sync.Mutex
	detached bool
}

// SetLaunch sets how servers are started.
func (c *Cluster) SetLaunch(launch Launch) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	c.launch = launch
}

// Detach separates the kubelet of the machine from the API server, or joins them again.
func (m *Machine) Detach(detached bool) {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	m.detached = detached
}

func (m *Machine) isDetached() bool {
	m.mutex.Lock()
	defer m.mutex.Unlock()
	return m.detached
}

// New makes a cluster with these nodes, whose controller and kubelets run until the test ends.
func New(t testing.TB, names ...string) *Cluster {
	t.Helper()
	cluster := &Cluster{t: t, Objects: objects(), Records: records(), Machines: map[string]*Machine{}, running: map[string]func(){}}
	cluster.Store = store.Client{Dynamic: cluster.Records, Namespace: Namespace}
	cluster.Leases = store.Leases{Kubernetes: cluster.Objects, Namespace: Namespace}
	cluster.Controller = &controller.Controller{
		Store: cluster.Store, Leases: cluster.Leases, Kubernetes: cluster.Objects, Namespace: Namespace, Bound: 5 * time.Second,
		Watches: controller.NewWatches(cluster.Store, cluster.Objects),
		Helper:  controller.Helper{ServerImage: "larder", DriverImage: "larder-csi", Data: "/var/lib/larder-csi", Memory: resource.MustParse("1Gi")},
	}
	cluster.launch = func(machine *Machine, id string) func() {
		machine.Servers.Run(id, true)
		return func() { machine.Servers.Run(id, false) }
	}
	for _, name := range names {
		cluster.Machines[name] = cluster.machine(name)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var all sync.WaitGroup
	all.Add(2)
	go func() {
		defer all.Done()
		if err := cluster.Controller.Run(ctx); err != nil && ctx.Err() == nil {
			t.Errorf("controller: %v", err)
		}
	}()
	go func() {
		defer all.Done()
		cluster.kubelets(ctx)
	}()
	t.Cleanup(func() {
		cancel()
		all.Wait()
		for _, stop := range cluster.running {
			stop()
		}
	})
	return cluster
}

func (c *Cluster) machine(name string) *Machine {
	machine := NewMachine(c.t, name, c.Store, c.Leases)
	_, err := c.Objects.CoreV1().Nodes().Create(context.Background(), &core.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		c.t.Fatal(err)
	}
	return machine
}

// NewMachine makes a node plugin on a machine of its own, with these clients of an API server.
func NewMachine(t testing.TB, name string, records store.Client, leases store.Leases) *Machine {
	t.Helper()
	// Short, because a control socket lies below it.
	dir, err := os.MkdirTemp("", "csi")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	if dir, err = filepath.EvalSymlinks(dir); err != nil {
		t.Fatal(err)
	}
	kubelet := filepath.Join(dir, "k")
	if err := os.Mkdir(kubelet, 0o750); err != nil {
		t.Fatal(err)
	}
	root, err := safepath.New(kubelet)
	if err != nil {
		t.Fatal(err)
	}
	machine := &Machine{Kubelet: kubelet, Flash: newFlash(), Devices: newDevices(), Mounts: mount.NewFakeMounter(nil), Servers: newServers()}
	machine.Node = &node.Node{
		Name: name, Data: filepath.Join(dir, "d"), Kubelet: root, Store: records, Leases: leases, Flash: machine.Flash,
		Devices: machine.Devices,
		Mounter: mount.NewSafeFormatAndMount(machine.Mounts, &testingexec.FakeExec{DisableScripts: true}),
		Bind:    machine.bind,
		Resizer: resizer{},
		Server:  machine.Servers.at,
		Bound:   10 * time.Second, FlushBound: time.Second,
	}
	return machine
}

// kubelets run the helper pods: a pod that is deleted is removed after its server has ended.
func (c *Cluster) kubelets(ctx context.Context) {
	for ctx.Err() == nil {
		list, err := c.Objects.CoreV1().Pods(Namespace).List(ctx, metav1.ListOptions{})
		if err == nil {
			exists := map[string]bool{}
			for n := range list.Items {
				pod := &list.Items[n]
				exists[pod.Name] = true
				c.kubelet(pod)
			}
			c.gone(exists)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// On is the node that the scheduler must choose for a pod.
func On(pod *core.Pod) string {
	required := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
	return required.NodeSelectorTerms[0].MatchFields[0].Values[0]
}

func (c *Cluster) kubelet(pod *core.Pod) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	machine := c.Machines[On(pod)]
	if machine == nil || machine.isDetached() {
		return
	}
	key := machine.Name + "/" + pod.Name
	stop := c.running[key]
	switch {
	case pod.DeletionTimestamp != nil:
		if stop != nil {
			stop()
			delete(c.running, key)
		}
		_ = c.Objects.Tracker().Delete(podResource, Namespace, pod.Name)
	case stop == nil:
		c.running[key] = c.launch(machine, pod.Labels[store.VolumeLabel])
	}
}

// gone stops servers whose pods were removed behind the back of their kubelet, once it is joined again.
func (c *Cluster) gone(exists map[string]bool) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for key, stop := range c.running {
		name, pod, _ := strings.Cut(key, "/")
		if !exists[pod] && !c.Machines[name].isDetached() {
			stop()
			delete(c.running, key)
		}
	}
}

// Running lists the nodes on which a server of the volume runs.
func (c *Cluster) Running(id string) []string {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	var names []string
	for key := range c.running {
		name, pod, _ := strings.Cut(key, "/")
		if strings.HasPrefix(pod, id+"-g") {
			names = append(names, name)
		}
	}
	return names
}

// Eventually waits until the condition holds.
func (c *Cluster) Eventually(what string, condition func() bool) {
	c.t.Helper()
	for deadline := time.Now().Add(10 * time.Second); time.Now().Before(deadline); time.Sleep(5 * time.Millisecond) {
		if condition() {
			return
		}
	}
	c.t.Fatalf("not within 10 s: %s", what)
}
