// SPDX-License-Identifier: MIT OR Apache-2.0

// One control plane for all tests, and the waits of the tests.

package clustertest

import (
	"context"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

var background = context.Background()

// bound is the time limit of a wait for something that takes a few seconds.
const bound = 60 * time.Second

// cluster is that of all tests, nil if they are skipped.
var cluster *rig

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) int {
	programs := os.Getenv("LARDER_CONTROL_PLANE")
	if programs == "" {
		fmt.Println("LARDER_CONTROL_PLANE is not set: the tests with a control plane are skipped (csi/control-plane makes one)")
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "larder-cluster")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	made, err := newRig(dir, programs)
	defer made.stop()
	if err != nil {
		fmt.Fprintf(os.Stderr, "control plane: %v\n%s", err, made.logs())
		return 1
	}
	cluster = made
	code := m.Run()
	// The controller is started again after each end, so its own faults are looked for in its log.
	log, err := os.ReadFile(made.controller.log)
	for _, fault := range []string{"WARNING: DATA RACE", "panic: ", ": panic: "} {
		if at := strings.Index(string(log), fault); err == nil && at >= 0 {
			fmt.Fprintf(os.Stderr, "larder-csi:\n%.4000s\n", log[at:])
			code = 1
		}
	}
	return code
}

// setup skips a test without a control plane, and prints the logs of one that fails.
func setup(t *testing.T) *rig {
	t.Helper()
	if cluster == nil {
		t.Skip("LARDER_CONTROL_PLANE is not set")
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(cluster.logs())
		}
	})
	return cluster
}

// eventually repeats an attempt until it succeeds.
func eventually(t *testing.T, what string, limit time.Duration, attempt func() error) {
	t.Helper()
	deadline := time.Now().Add(limit)
	for {
		err := attempt()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: not within %v: %v", what, limit, err)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// every repeats a step of a part that is played, until the context ends.
func every(ctx context.Context, interval time.Duration, step func(context.Context)) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		step(ctx)
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
	}
}
