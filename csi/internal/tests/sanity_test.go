// SPDX-License-Identifier: MIT OR Apache-2.0

// Package tests has the tests of the driver as a whole, over the cluster of package testrig: csi-sanity, the sequence of a pod's
// life, failures between steps, and hostile requests.
package tests

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/kubernetes-csi/csi-test/v5/pkg/sanity"

	"larder.dev/csi/internal/driver"
	"larder.dev/csi/internal/testrig"
)

// TestSanity runs csi-sanity over a socket as the kubelet uses it. CSI_ACCESS chooses raw block devices instead of file systems,
// since the suite can run once in a process: the make target runs both.
func TestSanity(t *testing.T) {
	access := os.Getenv("CSI_ACCESS")
	if access == "" {
		access = "mount"
	}
	cluster := testrig.New(t, "node-a")
	machine := cluster.Machines["node-a"]
	if err := machine.Report(context.Background()); err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "csi")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	socket := filepath.Join(dir, "csi.sock")
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- driver.Serve(ctx, socket, driver.Services{
			Identity: new(driver.Identity), Controller: cluster.Controller, Node: machine.Node,
		})
	}()
	config := sanity.NewTestConfig()
	config.Address = "unix://" + socket
	config.TargetPath = filepath.Join(machine.Kubelet, "target")
	config.StagingPath = filepath.Join(machine.Kubelet, "staging")
	config.TestVolumeParameters = map[string]string{"backingStorageClass": "san", "cacheSize": "10%"}
	config.TestVolumeAccessType = access
	sanity.Test(t, config)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
