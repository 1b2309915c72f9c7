// SPDX-License-Identifier: MIT OR Apache-2.0

// The commands of the two plugins: flags, clients, and what they are made of.
//
// Invariant: a flag that reaches a path or a program is checked here.

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"time"

	core "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/mount-utils"
	utilexec "k8s.io/utils/exec"

	"larder.dev/csi/internal/bind"
	"larder.dev/csi/internal/control"
	"larder.dev/csi/internal/controller"
	"larder.dev/csi/internal/device"
	"larder.dev/csi/internal/driver"
	"larder.dev/csi/internal/flash"
	"larder.dev/csi/internal/node"
	"larder.dev/csi/internal/safepath"
	"larder.dev/csi/internal/settings"
	"larder.dev/csi/internal/store"
)

// Most requests a second. The controller's are those of all volumes, after the failure of a zone too.
const (
	controllerRequests = 200
	nodeRequests       = 50
)

// common are the flags of both plugins.
type common struct{ socket, namespace, kubeconfig, data string }

func (c *common) add(flags *flag.FlagSet) {
	flags.StringVar(&c.socket, "socket", "/csi/csi.sock", "socket of the plugin")
	flags.StringVar(&c.namespace, "namespace", os.Getenv("NAMESPACE"), "namespace of the driver [default: $NAMESPACE]")
	flags.StringVar(&c.kubeconfig, "kubeconfig", "", "file with the address of the API server [default: that of the pod]")
	flags.StringVar(&c.data, "data", "/var/lib/larder-csi", "directory of the driver on each node")
}

// clients are those of the API server, which get at most this many requests a second in the long run. Their callers bound each
// call in time; a limit here would end watches too.
func (c *common) clients(requests float32) (kubernetes.Interface, store.Client, store.Leases, error) {
	none := func(err error) (kubernetes.Interface, store.Client, store.Leases, error) {
		return nil, store.Client{}, store.Leases{}, err
	}
	if !settings.IsNodeName(c.namespace) {
		return none(usage{fmt.Sprintf("--namespace: got %.64q, accepted the name of a namespace", c.namespace)})
	}
	if !filepath.IsAbs(c.data) || filepath.Clean(c.data) != c.data || c.data == "/" {
		return none(usage{fmt.Sprintf("--data: got %.128q, accepted an absolute path without . and .., below /", c.data)})
	}
	config, err := clientcmd.BuildConfigFromFlags("", c.kubeconfig)
	if err != nil {
		return none(err)
	}
	config.QPS, config.Burst = requests, 2*int(requests)
	objects, err := kubernetes.NewForConfig(config)
	if err != nil {
		return none(err)
	}
	records, err := dynamic.NewForConfig(config)
	if err != nil {
		return none(err)
	}
	return objects, store.Client{Dynamic: records, Namespace: c.namespace}, store.Leases{Kubernetes: objects, Namespace: c.namespace}, nil
}

func controllerPlugin(ctx context.Context, flags *flag.FlagSet, args []string) error {
	var common common
	common.add(flags)
	serverImage := flags.String("server-image", "", "image with the program larder")
	driverImage := flags.String("driver-image", "", "image with the program larder-csi")
	policy := flags.String("pull-policy", string(core.PullIfNotPresent), "when images of helper pods are pulled")
	memory := flags.String("server-memory", "1Gi", "memory of a server, at least the last line of 'larder size'")
	account := flags.String("helper-service-account", "default", "service account of helper pods, which needs no rights")
	bound := flags.Duration("bound", 45*time.Second, "time limit of a request")
	if _, err := parse(flags, args, 0); err != nil {
		return err
	}
	if *serverImage == "" || *driverImage == "" {
		return usage{"--server-image, --driver-image: missing; accepted: names of images"}
	}
	quantity, err := resource.ParseQuantity(*memory)
	if err != nil {
		return usage{fmt.Sprintf("--server-memory: got %.64q, accepted a quantity such as 1Gi", *memory)}
	}
	objects, records, leases, err := common.clients(controllerRequests)
	if err != nil {
		return err
	}
	plugin := &controller.Controller{
		Store: records, Leases: leases, Kubernetes: objects, Namespace: common.namespace, Bound: *bound,
		Watches: controller.NewWatches(records, objects),
		Helper: controller.Helper{
			ServerImage: *serverImage, DriverImage: *driverImage, PullPolicy: core.PullPolicy(*policy), Data: common.data,
			Memory: quantity, ServiceAccount: *account,
		},
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		ended <- plugin.Run(ctx)
		cancel()
	}()
	err = driver.Serve(ctx, common.socket, driver.Services{Identity: new(driver.Identity), Controller: plugin})
	cancel()
	return errors.Join(err, <-ended)
}

func nodePlugin(ctx context.Context, flags *flag.FlagSet, args []string) error {
	var common common
	common.add(flags)
	name := flags.String("node", os.Getenv("NODE_NAME"), "name of the node [default: $NODE_NAME]")
	group := flags.String("volume-group", "", "LVM volume group of the flash")
	kubelet := flags.String("kubelet-dir", "/var/lib/kubelet", "directory of the kubelet")
	bound := flags.Duration("bound", 110*time.Second, "time limit of a request")
	flushBound := flags.Duration("flush-bound", time.Minute, "time limit of the flush of a volume that is unstaged")
	if _, err := parse(flags, args, 0); err != nil {
		return err
	}
	switch {
	case !settings.IsNodeName(*name):
		return usage{fmt.Sprintf("--node: got %.64q, accepted the name of a node", *name)}
	case !settings.IsGroupName(*group):
		return usage{fmt.Sprintf("--volume-group: got %.64q, accepted the name of an LVM volume group", *group)}
	case *flushBound >= *bound:
		return usage{fmt.Sprintf("--flush-bound: got %v, accepted: less than --bound (%v)", *flushBound, *bound)}
	}
	root, err := safepath.New(*kubelet)
	if err != nil {
		return usage{err.Error()}
	}
	_, records, leases, err := common.clients(nodeRequests)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(common.data, node.VolumesDir), 0o700); err != nil {
		return err
	}
	programs := utilexec.New()
	vg := flash.Group{Name: *group, Exec: programs}
	plugin := &node.Node{
		Name: *name, Data: common.data, Kubelet: root, Store: records, Leases: leases, Flash: vg,
		Devices: &device.Manager{Exec: programs, Root: "/"},
		Mounter: mount.NewSafeFormatAndMount(mount.New(""), programs),
		Bind:    bind.Mount,
		Resizer: mount.NewResizeFs(programs),
		Server:  func(socket string) node.Server { return control.Client{Socket: socket} },
		Bound:   *bound, FlushBound: *flushBound,
	}
	go plugin.Keep(ctx)
	ready := func(ctx context.Context) error {
		_, _, err := vg.Space(ctx)
		return err
	}
	return driver.Serve(ctx, common.socket, driver.Services{Identity: &driver.Identity{Ready: ready}, Node: plugin})
}
