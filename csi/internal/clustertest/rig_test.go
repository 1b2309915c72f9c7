// SPDX-License-Identifier: MIT OR Apache-2.0

// The cluster: control plane, chart, controller, resizer, and the parts that are played.

package clustertest

import (
	"context"
	"fmt"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"

	"larder.dev/csi/internal/store"
)

// rig is a cluster with the driver.
type rig struct {
	*plane
	// objects, records and store are clients of an administrator.
	objects kubernetes.Interface
	records dynamic.Interface
	store   store.Client
	// ofController is a client with the rights of the controller, ofNoNode one with those of a node plugin, but of no node.
	ofController, ofNoNode kubernetes.Interface

	proxy      *proxy
	controller *process
	resizer    *process
	connection *grpc.ClientConn
	plugin     csi.ControllerClient

	played  sync.WaitGroup
	endPlay context.CancelFunc
	ended   context.Context
}

func newRig(dir, programs string) (*rig, error) {
	ctx, cancel := context.WithCancel(background)
	r := &rig{endPlay: cancel, ended: ctx}
	var err error
	if r.plane, err = newPlane(dir, programs); err != nil {
		return r, err
	}
	if r.objects, r.records, err = r.clients(r.tokens[admin]); err != nil {
		return r, err
	}
	r.store = store.Client{Dynamic: r.records, Namespace: namespace}
	args, err := r.install(ctx)
	if err != nil {
		return r, err
	}
	if err := r.accounts(ctx); err != nil {
		return r, err
	}
	if err := r.startDriver(args); err != nil {
		return r, err
	}
	r.play(func(ctx context.Context) { every(ctx, 150*time.Millisecond, r.backing) })
	r.play(func(ctx context.Context) { every(ctx, 200*time.Millisecond, r.provisioner) })
	return r, nil
}

// play runs a part until the end of the tests.
func (r *rig) play(part func(context.Context)) {
	r.played.Add(1)
	go func() {
		defer r.played.Done()
		part(r.ended)
	}()
}

func (r *rig) clients(token string) (kubernetes.Interface, dynamic.Interface, error) {
	objects, err := kubernetes.NewForConfig(r.config(token))
	if err != nil {
		return nil, nil, err
	}
	records, err := dynamic.NewForConfig(r.config(token))
	return objects, records, err
}

// accounts makes the clients of the driver's service accounts, and the file of the controller.
func (r *rig) accounts(ctx context.Context) error {
	node, err := r.token(ctx, "node", nil)
	if err != nil {
		return err
	}
	if r.ofNoNode, _, err = r.clients(node); err != nil {
		return err
	}
	controller, err := r.token(ctx, "controller", nil)
	if err != nil {
		return err
	}
	if r.ofController, _, err = r.clients(controller); err != nil {
		return err
	}
	if r.proxy, err = newProxy(r.address(), r.file("certificates/apiserver.crt")); err != nil {
		return err
	}
	if err := r.proxy.authority(r.file("proxy.crt")); err != nil {
		return err
	}
	return r.kubeconfig(r.file("controller"), r.proxy.server.URL, r.file("proxy.crt"), controller)
}

// startDriver starts the controller plugin with the arguments of the chart, and the resizer.
func (r *rig) startDriver(args []string) error {
	program := r.file("larder-csi")
	if err := build(program); err != nil {
		return err
	}
	socket := r.file("plugin/csi.sock")
	for n, arg := range args {
		if strings.HasPrefix(arg, "--socket=") {
			args[n] = "--socket=" + socket
		}
	}
	// -v: each request is logged.
	args = append(args, "--kubeconfig="+r.file("controller"), "-v=4")
	r.controller = &process{name: "larder-csi", log: r.file("larder-csi.log"), args: append([]string{program}, args...),
		env: []string{"NAMESPACE=" + namespace, "GORACE=halt_on_error=1"}}
	r.play(func(ctx context.Context) { supervise(ctx, r.controller) })
	r.resizer = &process{name: "csi-resizer", log: r.file("csi-resizer.log"), args: []string{
		r.programs + "/csi-resizer", "--csi-address=" + socket, "--kubeconfig=" + r.file("controller"), "--timeout=60s",
		"--handle-volume-inuse-error=true", "--retry-interval-start=200ms", "--retry-interval-max=2s"}}
	r.play(func(ctx context.Context) { supervise(ctx, r.resizer) })
	var err error
	r.connection, err = grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{
			BaseDelay: 50 * time.Millisecond, Multiplier: 1.5, MaxDelay: 500 * time.Millisecond,
		}, MinConnectTimeout: time.Second}), grpc.WithDefaultCallOptions(grpc.WaitForReady(true)))
	if err != nil {
		return err
	}
	r.plugin = csi.NewControllerClient(r.connection)
	return nil
}

// supervise starts a program again after each end, as a kubelet does.
func supervise(ctx context.Context, program *process) {
	for ctx.Err() == nil {
		if err := program.start(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return
		}
		select {
		case <-ctx.Done():
		case <-program.running():
			// A program that ends at once is not started in a loop without a pause.
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	}
	program.stop()
}

// stop ends everything.
func (r *rig) stop() {
	r.endPlay()
	r.played.Wait()
	if r.connection != nil {
		r.connection.Close()
	}
	if r.proxy != nil {
		r.proxy.stop()
	}
	if r.plane != nil {
		r.plane.stop()
	}
}

// logs are the last lines of all programs.
func (r *rig) logs() string {
	var text strings.Builder
	for _, program := range []*process{r.controller, r.resizer} {
		if program != nil {
			text.WriteString(program.tail(40))
		}
	}
	if r.plane != nil {
		for _, program := range []*process{r.plane.manager, r.plane.scheduler, r.plane.api} {
			if program != nil {
				text.WriteString(program.tail(8))
			}
		}
	}
	return text.String()
}

// raced reports whether this test has the race detector.
func raced() bool {
	info, _ := debug.ReadBuildInfo()
	if info == nil {
		return false
	}
	for _, setting := range info.Settings {
		if setting.Key == "-race" && setting.Value == "true" {
			return true
		}
	}
	return false
}
